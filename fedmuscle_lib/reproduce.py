"""The grid: notebooks executed headlessly, each in a process of its own, and an index page of all that they made.

This file is also the program of those processes (``_child``). It is run by its path, so that a child starts without importing
torch and the rest of the library, which its kernel will do; that is why the library is imported inside functions here.
"""

from __future__ import annotations

import html
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

import nbformat
import papermill
from jupyter_client import AsyncKernelManager

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
PATIENCE = 15  # seconds that an interrupted child has to shut its kernel down
_IN_A_CELL = 3  # exit code of a child whose notebook failed; any other is the child's own failure
_PARTING = "KeyboardInterrupt caught in kernel"  # jupyter_client interrupts a kernel before it ends it, which some then tell
_TYPES = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}
_NOTEBOOK_DECIDES = {"algorithm", "public", "profile", "seed"}  # settings that are no overrides

_log = logging.getLogger("fedmuscle")


@dataclass(frozen=True)
class Outcome:
    """How a notebook's execution ended: ``failure`` is None, or says where and why it failed."""

    notebook: str
    parameters: dict[str, Any]
    seconds: float
    failure: str | None


def reproduce(
    notebooks: Sequence[str] | None = None,
    profile: str = "mini",
    seeds: Sequence[int] = (0,),
    jobs: int = 2,
    output: Path = Path("figures"),
    overrides: dict[str, Any] | None = None,
    *,
    folder: Path = NOTEBOOKS,
) -> list[Outcome]:
    """Execute notebooks, ``jobs`` at a time, into ``<output>/<profile>/<name>/executed.ipynb``, and build the index page.

    A notebook that fails doesn't keep the others from running. Their log lines go to the logger "fedmuscle" as they come.

    Args:
        notebooks: names, without suffix; all of the folder's by default.
        profile, seeds: for every notebook that has such a parameter.
        overrides: parameters of notebooks by name, and settings, which go into a notebook's own parameter ``overrides``.
        folder: where the notebooks are.

    Raises:
        ValueError: an unknown notebook, a misspelt parameter or one of another type; nothing has run then.
        OSError: the output folder can't be written, or its disk is full.
    """
    target = Path(output).resolve() / profile
    common = {"profile": profile, "seeds": list(seeds), "output": os.path.relpath(target.parent, folder)}
    parameters = plan(select(notebooks, folder), common, overrides or {})
    at_a_time = min(jobs, len(parameters))
    children = _Children(cores=max(1, _cores() // at_a_time))
    pool = ThreadPoolExecutor(at_a_time)
    outcomes = []
    try:
        _try_to_write(target)
        futures = [pool.submit(_execute, path, target / path.stem, given, children) for path, given in parameters.items()]
        for future in as_completed(futures):
            outcomes.append(outcome := future.result())
            if outcome.failure:
                _log.error("%s: failed: %s", outcome.notebook, outcome.failure)
            index(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(target)) from error
    finally:  # after an interrupt or a full disk there are children left, which must not outlive this call
        pool.shutdown(wait=False, cancel_futures=True)
        children.end()
        pool.shutdown()
    return outcomes


# --- what to run -------------------------------------------------------------------------------------------------------------


def select(names: Sequence[str] | None, folder: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks called ``names``, or all, in the order of their names.

    Raises:
        ValueError: there is no such notebook; the message names the nearest.
    """
    known = {path.stem: path for path in sorted(folder.glob("*.ipynb"))}
    if not known:
        raise ValueError(f"no notebooks in {folder}")
    wanted = [name.removesuffix(".ipynb") for name in names or known]
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError("; ".join(f"no notebook {name!r}{_nearest(name, known)}" for name in unknown))
    return [known[name] for name in dict.fromkeys(wanted)]


def plan(paths: Sequence[Path], common: dict[str, Any], own: dict[str, Any]) -> dict[Path, dict[str, Any]]:
    """What each notebook is given: of ``common`` what it declares, and ``own`` parameters and settings.

    papermill itself would only warn of an unknown parameter and run with the default.

    Raises:
        ValueError: saying everything that is wrong with ``own`` or with a type.
    """
    from fedmuscle_lib.settings import Settings

    declared = {path: declared_parameters(path) for path in paths}
    parameters = {name for types in declared.values() for name in types}
    settings = {name: value for name, value in own.items() if name not in parameters and name in Settings.model_fields}
    problems = [f"{name} has an option of its own" for name in own if name in common]
    problems += [
        f"no parameter or setting {name!r}{_nearest(name, parameters | set(Settings.model_fields))}"
        for name in own
        if name not in parameters and name not in settings
    ]
    if settings and "overrides" not in parameters:
        problems.append(f"no chosen notebook takes settings ({', '.join(settings)})")
    overrides = own.get("overrides", {})
    if isinstance(overrides, dict):
        overrides = _absolute(overrides | settings)
        problems += _settings_problems(common["profile"], overrides)
    wanted = common | own | ({"overrides": overrides} if overrides else {})
    given = {path: {name: value for name, value in wanted.items() if name in types} for path, types in declared.items()}
    problems += [
        f"{path.stem}: {name} is a {declared[path][name]}, not {value!r}"
        for path, values in given.items()
        for name, value in values.items()
        if not _is(value, declared[path][name])
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return given


def declared_parameters(path: Path) -> dict[str, str]:
    """Names and annotated types of a notebook's parameters cell."""
    found = papermill.inspect_notebook(str(path))
    return {name: parameter["inferred_type_name"].split("[")[0] for name, parameter in found.items()}


def _settings_problems(profile: str, overrides: dict[str, Any]) -> list[str]:
    from fedmuscle_lib.settings import parse

    problems = [f"{name} is the notebook's choice, not an override" for name in overrides if name in _NOTEBOOK_DECIDES]
    try:
        parse({"profile": profile} | overrides)
    except ValueError as error:
        problems.append(str(error))
    return problems


def _absolute(overrides: dict[str, Any]) -> dict[str, Any]:
    """With whole paths, since a notebook runs in its own folder."""
    from fedmuscle_lib.settings import Settings

    paths = {name for name, field in Settings.model_fields.items() if field.annotation is Path}
    return {name: str(Path(value).resolve()) if name in paths else value for name, value in overrides.items()}


def _is(value: Any, type_name: str) -> bool:
    if isinstance(value, bool):
        return type_name == "bool"
    return isinstance(value, _TYPES.get(type_name, object))


def _nearest(name: str, known: Any) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _try_to_write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=".") as probe:
        probe.write(bytes(1 << 20))  # less than any notebook's results


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- running it --------------------------------------------------------------------------------------------------------------


class _Children:
    """The processes in flight, and an end to all of them.

    Args:
        cores: that each may use.
    """

    def __init__(self, cores: int) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(cores))
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # this library, not another installed one
        self._sockets = TemporaryDirectory(prefix="fm-")
        quiet = {"PYTHONWARNINGS": "ignore:IProgress not found"}  # there are no bars to draw
        self._environment = os.environ | threads | quiet | {"PYTHONPATH": path, "JUPYTER_RUNTIME_DIR": self._sockets.name}
        self._environment.pop("MPLBACKEND", None)  # the kernel's own shows figures in the notebook
        self._lock, self._running = threading.Lock(), set()
        self.ending = False

    def start(self, spec: dict[str, Any], cwd: Path) -> subprocess.Popen[str]:
        with self._lock:
            if self.ending:
                raise KeyboardInterrupt
            child = subprocess.Popen(
                [sys.executable, "-P", __file__, json.dumps(spec)],
                cwd=cwd,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf8",
                errors="replace",
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends them in order
            )
            self._running.add(child)
        return child

    def end(self) -> None:
        """Interrupt them, so that they shut their kernels down, and kill what has not ended in time."""
        with self._lock:
            self.ending = True
            alive = [child for child in self._running if child.poll() is None]
        for child in alive:
            child.send_signal(signal.SIGINT)
        for child in alive:
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
        self._sockets.cleanup()


def _execute(path: Path, folder: Path, parameters: dict[str, Any], children: _Children) -> Outcome:
    """Run one notebook into its folder and record how it went."""
    folder.mkdir(parents=True, exist_ok=True)
    part, executed = folder / "executed.part.ipynb", folder / "executed.ipynb"
    part.unlink(missing_ok=True)
    started = time.monotonic()
    # relative paths, because papermill writes them into the notebook
    spec = {"notebook": path.name, "part": os.path.relpath(part, path.parent), "parameters": parameters, "parent": os.getpid()}
    child = children.start(spec, cwd=path.parent)
    tail: deque[str] = deque(maxlen=20)
    for line in child.stdout:
        if line := line.rstrip():
            tail.append(line)
            if not children.ending and _PARTING not in line:
                _log.info("%s: %s", path.stem, line)
    # a kernel that was killed leaves no exception in the notebook: the return code is what counts
    failure = None if child.wait() == 0 else _diagnosis(path, part, child.returncode, tail)
    for done in (executed, executed.with_suffix(".html")):
        if failure:
            done.unlink(missing_ok=True)  # of an earlier run
        elif (fresh := done.with_suffix(f".part{done.suffix}")).exists():
            os.replace(fresh, done)
    outcome = Outcome(path.stem, parameters, round(time.monotonic() - started, 1), failure)
    _write(folder / "result.json", json.dumps(asdict(outcome), indent=1))
    return outcome


def _diagnosis(path: Path, part: Path, code: int, tail: Sequence[str]) -> str:
    """Where and why a notebook failed: the cell by its place in the notebook's source, and its error or the child's last words."""
    last = tail[-1] if tail else "no output"
    started = []
    if code == _IN_A_CELL and part.exists():
        cells = nbformat.read(part, as_version=4).cells
        started = [cell for cell in cells if cell.cell_type == "code" and cell.metadata.get("papermill", {}).get("start_time")]
    if not started:
        return f"exit code {code}: {last}"
    cell = started[-1]  # papermill goes no further, and calls the cell that a kernel died in completed
    places = {cell.id: place for place, cell in enumerate(nbformat.read(path, as_version=4).cells, start=1)}
    place = f"cell {places[cell.id]}" if cell.id in places else "the injected parameters"
    head = next((line.strip() for line in cell.source.splitlines() if line.strip() and not line.startswith("#")), "")
    errors = [f"{output.ename}: {output.evalue}" for output in cell.outputs if output.output_type == "error"]
    return f"{place} ({head}): {errors[0] if errors else last}"


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}")
    try:
        scratch.write_text(text, encoding="utf8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


# --- the child process -------------------------------------------------------------------------------------------------------


class _UnixSockets(AsyncKernelManager):
    """A kernel that nobody on the network can reach, and that races nobody for ports."""

    def __init__(self, **options: Any) -> None:
        super().__init__(transport="ipc", ip=os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], str(os.getpid())), **options)


def _child(spec: dict[str, Any]) -> int:
    """Execute ``spec``'s notebook in the current folder and export it; the exit code says whether all went well."""
    threading.Thread(target=_end_with_parent, args=(spec["parent"],), daemon=True).start()
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    logging.getLogger("papermill").addFilter(_was_printed)
    short = len(os.environ["JUPYTER_RUNTIME_DIR"]) < 50  # a socket's path has at most 104 characters
    try:
        papermill.execute_notebook(
            spec["notebook"],
            spec["part"],
            parameters=spec["parameters"],
            log_output=True,
            progress_bar=False,
            cwd=".",
            **({"kernel_manager_class": _UnixSockets} if short else {}),
        )
    except papermill.PapermillExecutionError:  # the notebook holds it
        return _IN_A_CELL
    except Exception as error:  # a dead kernel, a full disk: the parent reports whatever it is
        return _last_words(error, _IN_A_CELL)
    try:
        _export(Path(spec["part"]))
    except OSError as error:
        return _last_words(error, 1)
    return 0


def _last_words(error: Exception, code: int) -> int:
    print(f"{type(error).__name__}: {str(error).strip()}", flush=True)
    return code


def _was_printed(record: logging.LogRecord) -> bool:
    """Whether a cell printed this: then it ends a line, unlike papermill's remarks and the text forms of displayed tables."""
    return record.levelno > logging.INFO or str(record.msg).endswith("\n")


def _end_with_parent(parent: int) -> None:
    """Interrupt this process when its parent is gone, as if by Ctrl-C, and leave nothing behind if that does not do it."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(PATIENCE)
    os._exit(1)


def _export(notebook: Path) -> None:
    from nbconvert import HTMLExporter  # jupyterlab brings it; half a second that a failed notebook need not wait for

    logging.getLogger("traitlets").setLevel(logging.ERROR)  # it would miss alternative texts
    text, _ = HTMLExporter(embed_images=True).from_filename(str(notebook))
    notebook.with_suffix(".html").write_text(text, encoding="utf8")


# --- the index page ----------------------------------------------------------------------------------------------------------

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; display: block; overflow-x: auto }
th, td { padding: .2rem .7rem; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; vertical-align: top }
section { border-top: 2px solid #222; margin-top: 2.5rem } section h1 { font-size: 1.4rem } .anchor-link { display: none }
img { max-width: 100% } .failed { color: #b00020 }
pre { white-space: pre-wrap; background: #f4f4f4; padding: .7rem }
"""


def index(folder: Path) -> Path:
    """``<folder>/index.html``, from what lies in the notebooks' folders below it and nothing else."""
    entries = sorted(path for path in folder.iterdir() if (path / "result.json").exists() or (path / "table.csv").exists())
    rows = "".join(_index_row(entry) for entry in entries)
    sections = "".join(_section(entry) for entry in entries)
    name = html.escape(folder.name)
    page = folder / "index.html"
    _write(
        page,
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>FedMuscle: {name}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head><body>'
        f"<h1>FedMuscle, profile <code>{name}</code></h1>"
        f"<table><tr><th>notebook</th><th>state</th><th>time</th></tr>{rows}</table>{sections}</body></html>\n",
    )
    return page


def _result(entry: Path) -> dict[str, Any]:
    path = entry / "result.json"
    return json.loads(path.read_text(encoding="utf8")) if path.exists() else {"seconds": None, "failure": None, "parameters": {}}


def _index_row(entry: Path) -> str:
    result = _result(entry)
    state = '<td class="failed">failed</td>' if result["failure"] else "<td>done</td>"
    took = "run by hand" if result["seconds"] is None else f"{result['seconds']:.0f} s"
    name = html.escape(entry.name)
    return f'<tr><td><a href="#{name}">{name}</a></td>{state}<td>{took}</td></tr>'


def _section(entry: Path) -> str:
    result = _result(entry)
    parts = [f'<section id="{html.escape(entry.name)}">', _claim(entry)]
    if result["parameters"]:
        parts.append(f"<p>Parameters: <code>{html.escape(json.dumps(result['parameters']))}</code></p>")
    if result["failure"]:  # what else lies here is of an earlier run
        parts.append(f'<p class="failed">Failed.</p><pre>{html.escape(result["failure"])}</pre>')
        parts.append(_links(entry, ["executed.part.ipynb"]))
    else:
        parts += [_tables(entry), _figures(entry), _departures(entry)]
        parts.append(_links(entry, ["executed.html", "executed.ipynb", *sorted(path.name for path in entry.glob("*.csv"))]))
    return "".join([*parts, "</section>"])


def _claim(entry: Path) -> str:
    """The notebook's first cell: its title and what it claims."""
    from nbconvert.filters import markdown2html

    for name in ("executed.ipynb", "executed.part.ipynb"):
        if (entry / name).exists():
            cells = nbformat.read(entry / name, as_version=4).cells
            return next((markdown2html(c.source) for c in cells if c.cell_type == "markdown" and c.source.startswith("# ")), "")
    return f"<h1>{html.escape(entry.name)}</h1>"


def _tables(entry: Path) -> str:
    import pandas as pd

    from fedmuscle_lib import report

    parts = []
    for suffix, caption in (("", "At the end of Algorithm 1"), ("_after_local", "Before the last alignment")):
        paths = [entry / f"{name}{suffix}.csv" for name in ("table", "delta", "delta_interval")]
        if all(path.exists() for path in paths):
            table, delta, interval = map(pd.read_csv, paths)
            shown = report.side_by_side(table, delta.merge(interval, on=["public", "algorithm"])).to_html(border=0)
            parts.append(f"<h3>{caption}: ours | the paper's</h3>{shown}")
    return "".join(parts)


def _figures(entry: Path) -> str:
    def link(path: Path) -> str:
        source = html.escape(f"{entry.name}/{path.stem}")
        return f'<p><a href="{source}.svg"><img src="{source}.png" alt="{html.escape(path.stem)}"></a></p>'

    return "".join(link(path) for path in sorted(entry.glob("*.png")))


def _departures(entry: Path) -> str:
    import pandas as pd

    path = entry / "departures.csv"
    if not path.exists():
        return ""
    with pd.option_context("display.max_colwidth", None):
        table = pd.read_csv(path, keep_default_na=False).to_html(border=0, index=False)
    return f"<h3>Settings that differ from the paper's</h3>{table}"


def _links(entry: Path, names: Sequence[str]) -> str:
    links = [f'<a href="{html.escape(f"{entry.name}/{name}")}">{html.escape(name)}</a>' for name in names if (entry / name).exists()]
    return f"<p>{' · '.join(links)}</p>"


if __name__ == "__main__":
    sys.exit(_child(json.loads(sys.argv[1])))
