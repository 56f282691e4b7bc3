"""The strategies of GP-Tree: trees of binary Gaussian processes that grow by sub-trees.

Classes come in *blocks*. Each block has a tree of its own, built of its classes' kept rows, with a binary Gaussian
process at every node (`sureshot.tree`); block after block is joined to what was there under a new root, whose own
process tells the new block's rows from all before. What blocks there are is the strategy:

=============  ==========================================================================================
shared_root    the first session's classes, and all later ones together (the paper's choice)
session        every session's classes
rebuild        one block, built anew in every session
=============  ==========================================================================================

A block whose rows are the same is not computed anew: under ``shared_root`` and ``session`` what is said about the first
session's classes, given that it is one of them, stays the same to the last bit. Everything is a function of the kept
rows, the numbers of sessions and a seed.

Products of many unsure answers are far less sure than they should be, so the first session's rows, of which the tree
has seen only the representatives, say by one temperature how sure to be.

Reference: Achituve, Navon, Yemini, Chechik & Fetaya 2021, sections 3.4 and 4, supplement C.3 and D.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from sureshot.approximations.exact import Exact
from sureshot.approximations.inducing import Inducing
from sureshot.gaussian.ragged import size_buckets
from sureshot.incremental.representatives import representative_groups
from sureshot.incremental.strategy import ClassRows, FirstSession, Leading, SessionModel, Strategy, most_probable
from sureshot.incremental.temperature import loss_and_temperature
from sureshot.kernels.expression import Expression
from sureshot.kernels.leaves import RBF, Linear, Matern
from sureshot.tree.beam import leading_classes
from sureshot.tree.build import balanced_random_tree, build_tree, class_prototypes, directions_of, label_order_tree
from sureshot.tree.class_tree import ClassTree
from sureshot.tree.gibbs import run_tree_gibbs
from sureshot.tree.mean_field import fit_tree_mean_field
from sureshot.tree.natural_gradient import fit_tree_natural_gradient
from sureshot.tree.path_probabilities import SideLogProbabilities, class_log_probabilities, side_log_probabilities
from sureshot.tree.posterior import TreePart, TreePosterior
from sureshot.tree.problems import NodeSettings
from sureshot.tree.shared_kernel import SharedFeatures, SharedGram
from sureshot.tree.shared_rows import N_INDUCING, SharedRows, branch_centres

TreeStrategyName = Literal["shared_root", "session", "rebuild"]
TreeInference = Literal["auto", "mean_field", "gibbs", "natural_gradient"]
TreeConstruction = Literal["two_means", "balanced_random", "label_order"]

KERNELS = ("unit_rbf", "unit_matern32", "cosine")
"""Names of kernels on rows of unit length, with the length-scale 1 of the paper."""

_EXACT_ROWS = 2000  # of a block, whose kernel matrix is held whole; larger ones have inducing points
_MOST_FOR_TEMPERATURE = 1000
_QUERIES = 256  # at a time, for the temperature
_USUAL_TEMPERATURE = 0.1  # what other rows of the first session ask for (intents, digits), where there are none
_LONG = 100  # a temperature beyond which rows tell nothing


@dataclass(frozen=True)
class Problem:
    """Rows, and which class of a tree each belongs to."""

    x: Tensor  # (N, D), directions
    y: Tensor  # (N,) int64
    weight: Tensor  # (N,)
    n_classes: int

    def same_as(self, other: Problem) -> bool:
        """Whether all numbers are equal."""
        return (
            self.n_classes == other.n_classes
            and torch.equal(self.x, other.x)
            and torch.equal(self.y, other.y)
            and torch.equal(self.weight, other.weight)
        )


@dataclass(frozen=True)
class Solved:
    """A problem and its answer."""

    problem: Problem
    posterior: TreePosterior
    log_evidence: float  # NaN where the inference has none


@dataclass(frozen=True)
class TreeModel(SessionModel):
    """Joined trees; see `SessionModel`."""

    posterior: TreePosterior  # of all classes, its temperature the one that `shared` holds
    blocks: tuple[Solved, ...]
    roots: tuple[Solved, ...]  # between the blocks, one fewer
    distances: Exact
    members: Tensor  # (N,) int64, which of the P classes that have rows each belongs to
    share: Tensor  # (N,), weights of the rows, those of each class summing to one
    spread: Tensor  # (P,), of the classes' rows: the kernel between two of them, on average

    usual_beam = 64
    classes_for_a_branch = 16

    @property
    def n_classes(self) -> int:  # type: ignore[override]
        return self.posterior.tree.n_classes

    @property
    def tree(self) -> ClassTree:
        return self.posterior.tree

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """The temperature."""
        return {"temperature": torch.tensor(self.posterior.temperature, dtype=torch.float64)}

    @property
    def log_evidence(self) -> float:
        """A lower bound, NaN where a sampler has been at work."""
        return math.fsum(solved.log_evidence for solved in (*self.blocks, *self.roots))

    @property
    def entries_per_query(self) -> int:
        return 4 * self.n_classes + len(self.distances.rows)

    def log_probabilities(self, x: Tensor) -> Tensor:
        return self.posterior.log_probabilities(directions_of(x)).mT

    def class_latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities along the paths, their variances by linearisation."""
        mean, variance = self.latents(x)
        sides = side_log_probabilities(mean, variance, "plug_in")
        tree, temperature = self.tree, self.posterior.temperature
        # d log sigma(f) / df = 1 - sigma(f)
        slopes = SideLogProbabilities(sides.right.exp().square() * variance, sides.left.exp().square() * variance)
        first, second = class_log_probabilities(tree, sides), class_log_probabilities(tree, slopes)
        return first.mT / temperature, second.mT / temperature**2

    def latents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the nodes, of chains their mixture's."""
        return self.posterior.latents(directions_of(x))

    def class_logits(self, latents: Tensor) -> Tensor:
        sides = side_log_probabilities(latents, torch.zeros_like(latents), "plug_in")
        return class_log_probabilities(self.tree, sides) / self.posterior.temperature

    def outlier_scores(self, x: Tensor) -> Tensor:
        """Squared distance to the nearest class mean in the feature space."""
        queries = self.distances.queries(directions_of(x))
        likeness = queries.cross.new_zeros(len(self.spread), queries.cross.shape[1])
        likeness.index_add_(0, self.members, self.share.unsqueeze(-1) * queries.cross)
        return queries.variance + (self.spread.unsqueeze(-1) - 2 * likeness).amin(0)

    def leading(self, x: Tensor, k: int, beam: int | None, temperature: float = 1.0) -> Leading:
        """The beam's branches are those of every level of the tree."""
        if beam is None:
            return most_probable(torch.log_softmax(self.log_probabilities(x) / temperature, -1), k)
        return Leading(*leading_classes(self.posterior, directions_of(x), k, beam, temperature))


@dataclass(frozen=True)
class TreeSessions(Strategy):
    """See the module's docstring; the defaults are those of the released code, on given embeddings."""

    name: TreeStrategyName = "shared_root"
    kernel: str = "unit_rbf"
    # "auto" is mean field for the first session's block and Gibbs sampling for all else, as published.
    inference: TreeInference = "auto"
    n_representatives: int = 5
    base_scale: float = 4.0  # output scale of the first session's block
    novel_scale: float = 8.0  # and of all else
    n_chains: int = 30
    n_sweeps: int = 10
    construction: TreeConstruction = "two_means"  # of a block's tree; the others are to be compared with

    @property
    def keeps_first_answers(self) -> bool:
        """Unless the tree is built anew."""
        return self.name != "rebuild"

    def groups(self, rows: ClassRows, before: SessionModel | None) -> Tensor:
        """Clusters of k-means."""
        return representative_groups(directions_of(rows.x), rows.y, rows.weight, self.n_representatives)

    def first_session(self, rows: ClassRows, kept: ClassRows, seed: int) -> FirstSession:
        model = self._joined(kept, seed, None)
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(rows.y), generator=generator)[:_MOST_FOR_TEMPERATURE].to(rows.y.device)
        if rows.n_classes < 2:
            return FirstSession(model, rows.weight)
        if len(rows.y) == len(kept.y):  # no row but those that the tree knows
            return FirstSession(_tempered(model, _USUAL_TEMPERATURE), rows.weight)
        logs = torch.cat([model.log_probabilities(part) for part in rows.x[chosen].split(_QUERIES)])
        temperature = loss_and_temperature(logs, rows.y[chosen], 1.0)[1]
        return FirstSession(model if temperature >= _LONG else _tempered(model, temperature), rows.weight)

    def later_session(
        self, shared: Mapping[str, Tensor], kept: ClassRows, seed: int, before: SessionModel | None
    ) -> TreeModel:
        assert before is None or isinstance(before, TreeModel)
        return _tempered(self._joined(kept, seed, before), float(shared["temperature"]))

    def _joined(self, kept: ClassRows, seed: int, before: TreeModel | None) -> TreeModel:
        x = directions_of(kept.x)
        known = () if before is None else (*before.blocks, *before.roots)
        of_class = self._blocks(kept.sessions)
        blocks: list[Solved] = []
        roots: list[Solved] = []
        order: list[Tensor] = []  # of the classes, as the blocks have them
        posterior: TreePosterior | None = None
        for block in of_class.unique().tolist():
            classes = (of_class == block).nonzero().flatten()
            number = torch.full_like(of_class, -1)
            number[classes] = torch.arange(len(classes), device=number.device)
            own = number[kept.y] >= 0
            problem = Problem(x[own], number[kept.y[own]], kept.weight[own], len(classes))
            solved = self._solved(problem, bool(kept.sessions[classes[0]] == 0), seed + block, known)
            if posterior is None:
                posterior = solved.posterior
            else:
                earlier = torch.isin(kept.y, torch.cat(order))
                both = earlier | own
                split = Problem(x[both], own[both].long(), kept.weight[both], 2)
                root = self._solved(split, False, seed - block, known, is_root=True)
                roots.append(root)
                posterior = posterior.joined(solved.posterior, root.posterior)
            blocks.append(solved)
            order.append(classes)
        assert posterior is not None
        posterior = replace(posterior, tree=posterior.tree.relabelled(torch.cat(order).tolist()))
        _ = posterior.tree.levels  # made now, so that asking the model changes nothing in it
        return TreeModel(posterior, tuple(blocks), tuple(roots), *self._class_means(x, kept))

    def _blocks(self, sessions: Tensor) -> Tensor:
        """The block of each class, (C,)."""
        if self.name == "session":
            return sessions
        return sessions.clamp(max=1) if self.name == "shared_root" else torch.zeros_like(sessions)

    def _class_means(self, x: Tensor, kept: ClassRows) -> tuple[Exact, Tensor, Tensor, Tensor]:
        kernel = _kernel(self.kernel, x)
        members = kept.y.unique(return_inverse=True)[1]
        counts = torch.bincount(members)
        total = kept.weight.new_zeros(len(counts)).index_add(0, members, kept.weight)
        share = kept.weight / total[members]
        spread = torch.empty_like(total)
        for bucket in size_buckets(members.argsort(stable=True).split(counts.tolist())):
            own = bucket.values(share) * bucket.present
            spread[bucket.problems] = torch.einsum("pi,pij,pj->p", own, kernel(x[bucket.rows]), own)
        return Exact(kernel, x), members, share, spread

    def _solved(
        self, problem: Problem, is_first: bool, seed: int, known: tuple[Solved, ...], is_root: bool = False
    ) -> Solved:
        found = next((solved for solved in known if solved.problem.same_as(problem)), None)
        if found is not None:
            return found
        inference = self.inference
        if inference == "auto":
            inference = "mean_field" if is_first and self.name != "rebuild" else "gibbs"
        scale = self.base_scale if is_first and self.name != "rebuild" else self.novel_scale
        x, y = problem.x, problem.y
        tree = ClassTree(((0, 1),)) if is_root else self._tree(problem, seed)
        kernel = _kernel(self.kernel, x)
        if not len(x):
            return Solved(problem, _without_rows(tree, kernel, x, scale), 0.0)
        # A kept row counts once, however many it stands for, as an inducing input does in the paper's sessions.
        exact = len(x) <= _EXACT_ROWS
        if inference == "natural_gradient":
            points = x if exact else branch_centres(x, y, tree, N_INDUCING)
            features = SharedFeatures.of(Inducing(kernel, points, residual=True), x)
            found_by_steps = fit_tree_natural_gradient(tree, features, y, output_scale=scale)
            return Solved(problem, found_by_steps.posterior, float(found_by_steps.bound.sum()))
        shared = SharedGram.of(kernel, x) if exact else SharedRows.of(kernel, x, y, tree)
        if inference == "mean_field":
            fit = fit_tree_mean_field(tree, shared, y, output_scale=scale)
            return Solved(problem, fit.posterior, float(fit.bound.sum()))
        generator = torch.Generator(device=x.device).manual_seed(seed % 2**63)
        sampled = run_tree_gibbs(
            tree,
            shared,
            y,
            output_scale=scale,
            n_chains=self.n_chains,
            n_sweeps=self.n_sweeps,
            generator=generator,
        )
        return Solved(problem, sampled, math.nan)

    def _tree(self, problem: Problem, seed: int) -> ClassTree:
        if self.construction == "balanced_random":
            return balanced_random_tree(problem.n_classes, seed)
        if self.construction == "label_order":
            return label_order_tree(problem.n_classes)
        return build_tree(class_prototypes(problem.x, problem.y, problem.n_classes, problem.weight))


def _tempered(model: TreeModel, temperature: float) -> TreeModel:
    return replace(model, posterior=replace(model.posterior, temperature=temperature))


def _without_rows(tree: ClassTree, kernel: Expression, x: Tensor, scale: float) -> TreePosterior:
    """The prior of the nodes of classes none of which has rows."""
    shared = SharedGram.of(kernel, x.new_zeros(1, x.shape[1]))  # a row that no node has
    parts = (TreePart(0, shared, NodeSettings.of(tree, x, 0.0, scale), ()),) if tree.n_nodes else ()
    return TreePosterior(tree, parts)


def _kernel(name: str, like: Tensor) -> Expression:
    one = like.new_ones(())
    return RBF(one) if name == "unit_rbf" else Matern(1.5, one) if name == "unit_matern32" else Linear(one)
