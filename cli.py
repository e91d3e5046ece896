"""``chronicle``: the command line.

Purpose
    Puts the commands together (``commands/``) and is the one place where an error becomes a line
    on stderr and an exit code.

Guarantee
    ====  ==============================================================
    code  meaning
    ====  ==============================================================
    0     done
    1     failed: a line says what was expected, what was found, what to do
    2     not understood: wrong options or arguments
    130   interrupted (Ctrl-C); a line says what is in the store
    ====  ==============================================================

    No user ever sees a traceback, unless ``CHRONICLE_DEBUG=1`` asks for it.  A reader that goes
    away (``chronicle sql ... | head``) ends the command quietly.

    A command loads itself and no other one.

Limits
    Needs the extra ``cli`` (typer, rich).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

try:
    import typer
    from typer.core import TyperCommand, TyperGroup
except ModuleNotFoundError:  # pragma: no cover - needs an installation without the extra
    sys.exit("the chronicle command needs typer: pip install 'chronicle-eventstore[cli]'")

from .commands.terminal import fail, is_terminal, say
from .errors import ChronicleError, in_words_of, outside
from .isolation.fork_server import do_without_pandas

GROUPS = {
    "Data": {
        "ingest": "ingest",
        "streams": "streams",
        "describe": "streams",
        "index": "streams",
        "tail": "live",
        "demo": "demonstrate",
    },
    "Queries": {"sql": "sql", "explain": "streams", "live": "live", "bench": "upkeep"},
    "Store": dict.fromkeys(
        ("check", "inspect", "backup", "backups", "restore", "compact", "move"), "upkeep"
    ),
    "Server": dict.fromkeys(("serve", "token", "job", "mcp"), "serving"),
}
"""Commands as ``--help`` lists them, and the modules of ``commands/`` that have them."""

COMMANDS = {name: (group, module) for group in GROUPS for name, module in GROUPS[group].items()}

MEANT = {
    **dict.fromkeys(("ls", "list", "tables", "info", "status"), "streams"),
    **dict.fromkeys(("query", "select", "shell", "export", "delete", "drop"), "sql"),
    **dict.fromkeys(("import", "load", "add", "insert", "append", "init"), "ingest"),
    **dict.fromkeys(("server", "start", "web", "console", "ui"), "serve"),
    **dict.fromkeys(("show", "schema"), "describe"),
    **dict.fromkeys(("watch", "follow"), "tail"),
    **dict.fromkeys(("verify", "repair", "fsck"), "check"),
    **dict.fromkeys(("dump", "snapshot"), "backup"),
    **dict.fromkeys(("vacuum", "optimize", "merge"), "compact"),
    **dict.fromkeys(("alert", "watch-query", "view"), "live"),
    "plan": "explain",
}
"""Names that other programs have for commands."""

FRAMES = ("demo", "bench")
"""Commands that start Spark or other libraries that have pandas frames."""


COLLECTED_EVERY = 200_000
"""New objects after which Python looks for cycles: modules that load make a hundred thousand."""


def _version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        print(f"chronicle {__version__}")
        raise typer.Exit


class _Group(TyperGroup):
    """Commands in groups, also in a pipe; other programs' names get a suggestion."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        limit = formatter.width - 16
        _write_sections(
            formatter,
            (
                (
                    str(getattr(command, "rich_help_panel", None)),
                    (name, command.get_short_help_str(limit)),
                )
                for name, command in self.commands.items()
            ),
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0].lower() in MEANT:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {MEANT[args[0].lower()]!r}?")
        return super().resolve_command(ctx, args)


class _Command(TyperCommand):
    """Options under headings, also in a pipe."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: list[tuple[str, Any]] = []
        for each in self.get_params(ctx):
            plain = "Arguments" if each.param_type_name == "argument" else "Options"
            title = getattr(each, "rich_help_panel", None) or plain
            rows.append((title, each.get_help_record(ctx)))
        _write_sections(formatter, rows)


def _write_sections(formatter: Any, rows: Iterable[tuple[str, tuple[str, str] | None]]) -> None:
    sections: dict[str, list[tuple[str, str]]] = {}
    for title, row in rows:
        if row is not None:
            sections.setdefault(title, []).append(row)
    for title, listed in sections.items():
        with formatter.section(title):
            formatter.write_dl(listed)


def _common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Chronicle: an event store with SQL, windows and row patterns over time."""
    if context.invoked_subcommand is None:
        from .commands.start import next_steps

        for line in next_steps():
            print(line)


def app_of(words: Sequence[str]) -> typer.Typer:
    """The application: with the one command that is asked for, where that is told by its place.

    To load all of them takes a tenth of a second, which a command that answers within less than
    half a second would notice.
    """
    app = typer.Typer(
        name="chronicle",
        help="Chronicle: an event store with SQL, windows and row patterns over time.",
        cls=_Group,
        invoke_without_command=True,
        rich_markup_mode="rich" if is_terminal() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        group, module_name = COMMANDS[name]
        module = importlib.import_module(f".commands.{module_name}", __package__)
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=group)
        else:
            app.command(name, cls=_Command, rich_help_panel=group)(command)
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code."""
    gc.set_threshold(COLLECTED_EVERY)
    _load_less(sys.argv[1:] if arguments is None else arguments)
    code = run(arguments)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _forget_stdout()
    gc.freeze()  # the interpreter looks for cycles once more when it ends, a tenth of its time
    sys.exit(code)


def _load_less(words: Sequence[str]) -> None:
    """Load neither pandas nor threads for products of matrices, in commands that have no frames.

    Pandas would be a third of what ``chronicle streams`` takes, the threads that OpenBLAS starts
    for NumPy a tenth.  Spark's commands need pandas.
    """
    by_spark = any("spark" in each or each.startswith("--master") for each in words)
    if words and words[0] not in FRAMES and not by_spark:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        do_without_pandas()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit code and never raises, except with ``CHRONICLE_DEBUG``."""
    if "_CHRONICLE_COMPLETE" in os.environ:  # the shell asks what could come next
        app_of(())(prog_name="chronicle")
    debug = os.environ.get("CHRONICLE_DEBUG", "") not in ("", "0")
    words = list(sys.argv[1:] if arguments is None else arguments)
    interrupts: list[int] = []
    try:
        # Not app(...): that one turns interrupts and broken pipes into exit codes of its own.
        command = typer.main.get_command(app_of(words))
        with _counted(interrupts), command.make_context("chronicle", words) as context:
            command.invoke(context)
        return 0
    except typer.Exit as left:
        return left.exit_code
    except BrokenPipeError:
        _forget_stdout()
        return 0
    except Exception as error:
        if debug and not _is_usage(error):
            raise
        if interrupts and not (isinstance(error, ChronicleError) or _is_usage(error)):
            # a library took the interrupt, in the middle of an import for one, and fell over it
            say("interrupted")
            _notes(error)
            return 130
        return _explain(error)
    except KeyboardInterrupt as error:
        if debug:
            raise
        say("interrupted")
        _notes(error)
        return 130


@contextlib.contextmanager
def _counted(interrupts: list[int]) -> Iterator[None]:
    """Note interrupts in a list, besides what they do anyway."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, heard)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_usage(error: BaseException) -> bool:
    return hasattr(error, "exit_code") and hasattr(error, "format_message")


def _explain(error: Exception) -> int:
    """Say what went wrong; gives the exit code."""
    if _is_usage(error):
        context = getattr(error, "ctx", None)
        fail(str(error.format_message()))  # type: ignore[attr-defined]
        if context is not None:
            say(f"try: {context.command_path} --help")
        return int(error.exit_code)  # type: ignore[attr-defined]
    if isinstance(error, ChronicleError):
        fail(in_words_of("command", str(error)))
        _notes(error)
        return outside(error).exit_code
    if isinstance(error, OSError) and error.strerror:
        where = f" {error.filename!r}" if error.filename else ""
        fail(f"{error.strerror}{where}")
    elif isinstance(error, MemoryError):
        fail("out of memory")
    else:
        text = str(error).splitlines()[0] if str(error) else ""
        fail(f"something unexpected happened: {type(error).__name__} {text}".rstrip())
        say("  CHRONICLE_DEBUG=1 shows where; please report it")
    _notes(error)
    return 1


def _notes(error: BaseException) -> None:
    for note in getattr(error, "__notes__", ()):
        say(f"  {note}")


def _forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter does not complain while it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


if __name__ == "__main__":
    main()
