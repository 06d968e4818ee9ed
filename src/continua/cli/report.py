"""`continua report [RUN|STUDY]...`: what is known about runs and studies, as one HTML page."""

from pathlib import Path

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words


def add_report_arguments(parser: Parser, words: Words) -> None:
    parser.add_argument(
        "what",
        metavar="RUN|STUDY",
        type=str,
        nargs="*",
        default=[],
        help="folders of runs, finished or not; studies such as dcn/table2a or dcn/table2a@smoke, or a paper's name; none: all there is",
    )
    parser.common("runs")
    parser.option("out", Path | None, None, "the HTML file (else report.html in the one run's folder, or in that of all runs)")
    parser.option("title", str | None, None, "title of the page")
    parser.option("files", Path | None, None, "also write pictures (PNG, SVG), CSV and Markdown to this folder")


def report_command(options: Namespace) -> None:
    """Run `continua report`."""
    from continua.report import write_html, write_page
    from continua.runs import runs_folder
    from continua.studies import asked_for, report_page

    asked = asked_for(options.what, options.runs)
    page = report_page(asked, options.runs, options.title)
    single = asked.runs[0] if asked.runs and not asked.studies else runs_folder(options.runs)
    target = write_html(page, options.out or single / "report.html")
    print(f"wrote {target}")
    if options.files is not None:
        print(f"wrote {len(write_page(page, options.files, ('png', 'svg'), anew=True))} files to {options.files}")


COMMAND = Command(
    "One self-contained HTML page about runs and studies: ours beside the printed values, curves, cost, what was analysed.",
    report_command,
    add_report_arguments,
)
