"""Every table and figure of the papers as a declaration: runs + question + published value. `continua reproduce ID` carries one out."""

from continua.studies.by_sweep import sweep_trainer
from continua.studies.claims import verdict
from continua.studies.compare import comparison, in_standard_errors, over_seeds
from continua.studies.known import STUDIES, find_studies, find_study
from continua.studies.listing import study_states
from continua.studies.overview import asked_for, report_page
from continua.studies.reproduce import Reproduction, keep, reproduce, train_here
from continua.studies.study import SCALES, Claim, Finding, Row, Setting, Study

__all__ = [
    "SCALES",
    "STUDIES",
    "Claim",
    "Finding",
    "Reproduction",
    "Row",
    "Setting",
    "Study",
    "asked_for",
    "comparison",
    "find_studies",
    "find_study",
    "in_standard_errors",
    "keep",
    "over_seeds",
    "report_page",
    "reproduce",
    "study_states",
    "sweep_trainer",
    "train_here",
    "verdict",
]
