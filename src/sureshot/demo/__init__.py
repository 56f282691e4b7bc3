"""What ``sureshot demo`` shows, from data that ships with scikit-learn: no files and no network are needed.

`sureshot.demo.digits` is the study and its report, `sureshot.demo.peers` the classifiers beside ours, and
`sureshot.demo.comparison` how all of them are measured. The experiments of the repository use the last two as well.
"""
