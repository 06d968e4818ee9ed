"""Questions asked of a trained network. Each is a plain function that returns plain numbers, usable in a notebook:

    from continua.analysis import scales
    found = scales(continua.from_pretrained("runs/x/best"))

and a command, `continua analyse scales runs/x`. A new one is a file `analysis/NAME.py` with four things, and a line below:

    @dataclass(frozen=True)
    class Brightness:                                   # the result: floats, text, lists, NumPy arrays, dataclasses of these
        mean: list[float]

    def brightness(model, batches, *, factor=1.0, advance=no_progress) -> Brightness:   # batches: (images, labels), any iterable
        ...

    @dataclass(frozen=True)
    class Options(DataOptions):                         # fields are options of the command; DataOptions adds data, split, limit, batch_size
        factor: float = option(1.0, "times the image")

    def ask(subject: Subject, options: Options) -> Brightness:          # subject: model, images(options), metrics, result, progress, keep
        images = subject.images(options)
        with subject.progress("brightness", len(images)) as advance:
            return brightness(subject.model, images, factor=options.factor, advance=advance)

    def present(found: Brightness) -> Page:
        series = Series("mean", range(len(found.mean)), found.mean)
        return Page("Brightness", ["One sentence.", Figure("mean", "Mean by batch", Axis("batch"), Axis("brightness", "%"), [series])])

    QUESTION = Question("brightness", "how bright the images are", Options, ask, present)   # runs="many": ask gets a list of subjects

Long ones store their pieces: `subject.keep("c = 0.5", make)` calls `make` only where an interrupted analysis has not kept that piece.
"""

from continua.analysis.accuracy import black, has_time
from continua.analysis.answers import Answer, answer
from continua.analysis.contrast import Contrast, contrast
from continua.analysis.features import Features, features
from continua.analysis.known import find_question, known_questions
from continua.analysis.pattern_completion import masked, pattern_completion, states
from continua.analysis.question import DataOptions, Question
from continua.analysis.scales import scales, short_name
from continua.analysis.stages import stages
from continua.analysis.steps import Steps, steps
from continua.analysis.subject import Subject, subject_of
from continua.analysis.tolerance import tolerance
from continua.analysis.trainings import curves_over_seeds, runs_page
from continua.analysis.transfer import transfer
from continua.analysis.weights import LayerPath, synthetic, weights
from continua.options import option
from continua.runs import Images

__all__ = [
    "Answer",
    "Contrast",
    "DataOptions",
    "Features",
    "Images",
    "LayerPath",
    "Question",
    "Steps",
    "Subject",
    "answer",
    "black",
    "contrast",
    "curves_over_seeds",
    "features",
    "find_question",
    "has_time",
    "known_questions",
    "masked",
    "option",
    "pattern_completion",
    "runs_page",
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
