"""Questions asked of a trained network. Each is a plain function that returns plain numbers, usable in a notebook:

    from continua.analysis import scales
    result = scales(continua.from_pretrained("runs/x/best"))

and a command, `continua analyse scales runs/x`. An analysis is one file of `analysis/questions/`: the dataclass of its result, the
function, `Options` (fields are options of the command; `DataOptions` adds which images), `ask(subject, options)`, `present(result)`, and
its `Question`, registered under the function's name. One of your own is a file like these, wherever it lies; a whole one is in
docs/own-parts.md. Long ones store their pieces: `subject.keep("c = 0.5", make)` calls `make` only where an interrupted analysis has not
kept that piece.
"""

from continua.analysis.answers import Answer, answer
from continua.analysis.gradients import compare_gradients
from continua.analysis.measure import black
from continua.analysis.question import DataOptions, Question, Subject, find_question, known_questions, register_question, subject_of
from continua.analysis.questions.contrast import Contrast, ContrastSaving, contrast, savings
from continua.analysis.questions.features import Features, features
from continua.analysis.questions.pattern_completion import Difference, completion, masked, pattern_completion, states
from continua.analysis.questions.reaction_time import ReactionTime, reaction_time
from continua.analysis.questions.reconstruction import examples_maps, reconstruction
from continua.analysis.questions.retrieval import retrieval
from continua.analysis.questions.scales import conv_name, interval_of, scales, short_name
from continua.analysis.questions.stages import stages
from continua.analysis.questions.steps import Steps, steps
from continua.analysis.questions.tolerance import tolerance
from continua.analysis.questions.transfer import Point, transfer
from continua.analysis.questions.weights import LayerPath, synthetic, weights
from continua.analysis.trainings import curves_over_seeds, runs_page
from continua.options import option
from continua.runs import Images

__all__ = [
    "Answer",
    "Contrast",
    "ContrastSaving",
    "DataOptions",
    "Difference",
    "Features",
    "Images",
    "LayerPath",
    "Point",
    "Question",
    "ReactionTime",
    "Steps",
    "Subject",
    "answer",
    "black",
    "compare_gradients",
    "completion",
    "contrast",
    "conv_name",
    "curves_over_seeds",
    "examples_maps",
    "features",
    "find_question",
    "interval_of",
    "known_questions",
    "masked",
    "option",
    "pattern_completion",
    "reaction_time",
    "reconstruction",
    "register_question",
    "retrieval",
    "runs_page",
    "savings",
    "scales",
    "short_name",
    "stages",
    "states",
    "steps",
    "subject_of",
    "synthetic",
    "tolerance",
    "transfer",
    "weights",
]
