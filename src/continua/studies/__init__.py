"""Every table and figure of the papers as a declaration: runs + question + published value. `continua reproduce ID` carries one out."""

from continua.studies.compare import comparison, in_standard_errors, over_seeds
from continua.studies.known import STUDIES, find_study
from continua.studies.reproduce import Reproduction, keep, reproduce, train_here
from continua.studies.study import Claim, Finding, Row, Setting, Study

__all__ = [
    "STUDIES",
    "Claim",
    "Finding",
    "Reproduction",
    "Row",
    "Setting",
    "Study",
    "comparison",
    "find_study",
    "in_standard_errors",
    "keep",
    "over_seeds",
    "reproduce",
    "train_here",
]
