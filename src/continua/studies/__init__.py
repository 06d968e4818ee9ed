"""Every table and figure of the papers, and questions of ours, as declarations: runs + question + claims. Your own: docs/own-parts.md."""

from continua.report import Claim, Printed
from continua.studies import anodev2, anodev2_gradients, dcn, dcn_figures, features, features_retrieval, neuro, rknet
from continua.studies.claims import claim_above, claim_ahead, claim_behind, claim_below, claim_that, decided, verdict_text
from continua.studies.compare import comparison, every_seed, in_standard_errors, over_seeds
from continua.studies.overview import asked_for, report_page, study_states
from continua.studies.reproduction import Reproduction, ask_kept, keep, reproduce, train_row
from continua.studies.runs import Runs, sweep_trainer, train_here
from continua.studies.study import SCALES, STUDIES, Finding, Row, Setting, Study, find_studies, find_study, register_study, smoke
from continua.tally import Tally, counted

__all__ = [
    "SCALES",
    "STUDIES",
    "Claim",
    "Finding",
    "Printed",
    "Reproduction",
    "Row",
    "Runs",
    "Setting",
    "Study",
    "Tally",
    "ask_kept",
    "asked_for",
    "claim_above",
    "claim_ahead",
    "claim_behind",
    "claim_below",
    "claim_that",
    "comparison",
    "counted",
    "decided",
    "every_seed",
    "find_studies",
    "find_study",
    "in_standard_errors",
    "keep",
    "over_seeds",
    "register_study",
    "report_page",
    "reproduce",
    "smoke",
    "study_states",
    "sweep_trainer",
    "train_here",
    "train_row",
    "verdict_text",
]

for _paper in (
    [*dcn.STUDIES, *dcn_figures.STUDIES],
    [*anodev2.STUDIES, *anodev2_gradients.STUDIES],
    [*features.STUDIES, *features_retrieval.STUDIES],
    rknet.STUDIES,
    neuro.STUDIES,
):
    for _study in sorted(_paper, key=lambda study: ("/table" not in study.id, "/fig" not in study.id, study.id)):  # tables, figures, others
        register_study(_study)
