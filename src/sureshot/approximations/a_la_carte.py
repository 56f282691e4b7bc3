"""A la carte: Fastfood whose diagonals the evidence learns (Yang, Smola, Song & Wilson 2015).

Lengths of frequencies are the kernel's radial shape, any isotropic one; the other diagonals bend it by direction. Like
the frequencies of `ssgp` they are many numbers, to be compared with the draw by left-out rows.
"""

from sureshot.approximations.fastfood import Fastfood


class ALaCarte(Fastfood):
    """By diagonals that begin as a draw."""

    name = "a_la_carte"
    learnt = ("signs", "gains", "lengths")
