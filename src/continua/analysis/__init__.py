"""Questions asked of a trained network. Each is a plain function that returns plain numbers, usable in a notebook:

    from continua.analysis import scales
    result = scales(continua.from_pretrained("runs/x/best"))

and a command, `continua analyse scales runs/x`. An analysis is one file of `analysis/questions/`; its function is a name of this room, and
its `Question` is registered under the same name. One of your own is a file like these, wherever it lies; a whole one is in
docs/own-parts.md:

    @dataclass(frozen=True)
    class Brightness:                                   # the result: floats, text, lists, NumPy arrays, dataclasses of these
        mean: list[float]

    def brightness(model, batches, *, factor=1.0, advance=no_progress) -> Brightness:   # batches: (images, labels), any iterable
        ...

    @dataclass(frozen=True)
    class Options(DataOptions):                         # fields are options of the command; DataOptions adds data, split, limit, batch_size
        factor: float = option(1.0, "times the image")

    def ask(subject: Subject, options: Options) -> Brightness:          # subject: model, images(options), run, progress, keep
        images = subject.images(options)
        with subject.progress("brightness", len(images)) as advance:
            return brightness(subject.model, images, factor=options.factor, advance=advance)

    def present(result: Brightness) -> Page:
        series = Series("mean", range(len(result.mean)), result.mean)
        return Page("Brightness", ["One sentence.", Figure("mean", "Mean by batch", Axis("batch"), Axis("brightness", "%"), [series])])

    register_question(Question("brightness", "How bright the images are.", Options, ask, present))   # runs="many": ask gets all subjects

Long ones store their pieces: `subject.keep("c = 0.5", make)` calls `make` only where an interrupted analysis has not kept that piece.
"""

from continua.analysis.answers import Answer, answer
from continua.analysis.measure import black
from continua.analysis.question import DataOptions, Question, Subject, find_question, known_questions, register_question, subject_of
from continua.analysis.questions.contrast import Contrast, contrast, savings
from continua.analysis.questions.features import Features, features
from continua.analysis.questions.pattern_completion import masked, pattern_completion, states
from continua.analysis.questions.reconstruction import examples_maps, reconstruction
from continua.analysis.questions.scales import conv_name, interval_of, scales, short_name
from continua.analysis.questions.stages import stages
from continua.analysis.questions.steps import Steps, steps
from continua.analysis.questions.tolerance import tolerance
from continua.analysis.questions.transfer import transfer
from continua.analysis.questions.weights import LayerPath, synthetic, weights
from continua.analysis.trainings import curves_over_seeds, runs_page
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
    "reconstruction",
    "register_question",
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
