"""JupyterLab as a reader has it: every lesson runs from top to bottom, its widgets move its
pictures, and nothing is red.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
READ = [
    *sorted(NOTEBOOKS.glob("lessons/*.ipynb")),
    *sorted(NOTEBOOKS.glob("lessons/solutions/*.ipynb")),
]
READ += [NOTEBOOKS / f"{name}.ipynb" for name in ("00_start_here", "muscle_loss", "table7")]
SECONDS = 1200  # for a whole notebook

RUN_ALL = """() => {
    window.finished = null
    const running = jupyterapp.commands.execute("notebook:run-all-cells")
    running.then(whole => window.finished = {whole}, error => window.finished = {error: `${error}`})
}"""
IDLE = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
NOTEBOOK = "JSON.stringify(jupyterapp.shell.currentWidget.content.model.sharedModel.toJSON())"
RED = (
    ".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr'],"
    " .jp-RenderedText[data-mime-type='application/vnd.jupyter.error']"
)
PICTURES = (
    "[...document.querySelectorAll('.jp-OutputArea-output img')].map(image => image.src).join()"
)
AT_THE_TOP = """() => {
    document.querySelector(".jp-WindowedPanel-outer").scrollTop = 0
    return document.querySelector(".jp-Cell[data-windowed-list-index='0'], .jp-Cell")?.getBoundingClientRect().top > 0
}"""
HEIGHT = """() => {
    const cells = [...document.querySelectorAll(".jp-NotebookPanel .jp-Cell")]
    return cells.at(-1).getBoundingClientRect().bottom - cells[0].getBoundingClientRect().top
}"""
CONTROLS = (
    ".jupyter-widgets .noUi-handle, .jupyter-widgets select, .jupyter-widgets input[type=checkbox]"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory, mini_world):
    """Address and token of a JupyterLab over a copy of the notebooks.

    All that it and they write goes to a folder of its own.
    """
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(
        NOTEBOOKS, folder / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints")
    )
    for path in folder.glob("notebooks/*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            cell.source = cell.source.replace(
                'output: str = ""', f'output: str = "{folder / "results"}"'
            )
        nbformat.write(notebook, path)
    quiet = folder / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    quiet.parent.mkdir(parents=True)
    quiet.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    own = {
        f"JUPYTER_{what}_DIR": str(folder / what.lower()) for what in ("CONFIG", "DATA", "RUNTIME")
    }
    own |= {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }
    own |= {
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": str(ROOT),
        "FEDMUSCLE_RUNS": str(folder / "runs"),
    }
    environment = {
        name: value for name, value in (os.environ | own).items() if name != "MPLBACKEND"
    }  # figures belong in the page
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex()
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--expose-app-in-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
    ]
    command += [
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        str(folder / "notebooks"),
    ]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    address = f"http://127.0.0.1:{port}"
    try:
        answers(f"{address}/api", server, folder / "log")
        yield address, token
    finally:
        server.terminate()
        server.wait(60)


def answers(url, server, log, seconds=300):
    """Wait until a server answers."""
    last = time.monotonic() + seconds
    while time.monotonic() < last and server.poll() is None:
        try:
            return urlopen(url, timeout=10).close()
        except (URLError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"JupyterLab does not answer: {log.read_text()[-2000:]}")


@pytest.fixture
def opened(lab, open_page):
    """Opens a notebook with a kernel of its own, which ends with the test."""
    address, token = lab
    page = open_page()

    def open_it(path):
        page.goto(
            f"{address}/lab/tree/{path.relative_to(NOTEBOOKS).as_posix()}?reset&token={token}"
        )
        page.wait_for_function("window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady")
        page.wait_for_function(IDLE)
        page.evaluate(
            "jupyterapp.commands.execute('application:toggle-left-area')"
        )  # the notebook has the width
        return page

    yield open_it
    page.evaluate("window.jupyterapp?.serviceManager.sessions.shutdownAll()")


@pytest.mark.parametrize(
    "path", READ, ids=lambda path: path.relative_to(NOTEBOOKS).with_suffix("").as_posix()
)
def test_it_runs_and_its_widgets_move_its_pictures(path, opened, screenshot):
    page = run_whole(path, opened)
    name = f"lab/{path.relative_to(NOTEBOOKS).with_suffix('')}"
    whole_notebook_in_view(page)
    screenshot(page, name)
    for number in range(page.locator(CONTROLS).count()):
        before = page.evaluate(PICTURES)
        move(page.locator(CONTROLS).nth(number))
        page.wait_for_function(f"before => {PICTURES} !== before", arg=before)
        page.wait_for_function(IDLE)
        assert page.locator(RED).all_inner_texts() == []
        screenshot(page, f"{name}-moved-{number + 1}")


def run_whole(path, opened):
    """Open a notebook, run all of its cells, and look for errors and warnings in their outputs."""
    if not path.exists():
        pytest.skip(f"there is no {path.relative_to(ROOT)}")
    page = opened(path)
    page.evaluate(RUN_ALL)
    page.wait_for_function("window.finished", timeout=1000 * SECONDS)
    outputs = [
        output
        for cell in json.loads(page.evaluate(NOTEBOOK))["cells"]
        for output in cell.get("outputs", [])
    ]
    assert [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ] == []
    assert page.evaluate("window.finished") == {"whole": True}
    return page


def whole_notebook_in_view(page):
    """Make the window as high as the notebook, so that nothing of it is left to scroll, and wait
    until it is drawn.
    """
    for _ in range(3):  # heights of what was out of sight are guesses
        page.set_viewport_size(
            {"width": 1280, "height": min(int(page.evaluate(HEIGHT)) + 200, 16_000)}
        )
        page.wait_for_function(AT_THE_TOP)


def move(control):
    """A step of a slider, another entry of a list, the other state of a box."""
    control.scroll_into_view_if_needed()
    kind = control.evaluate("element => element.tagName")
    if kind == "SELECT":
        control.select_option(
            index=(control.evaluate("element => element.selectedIndex") + 1)
            % control.locator("option").count()
        )
    elif kind == "INPUT":
        control.click()
    else:
        control.focus()
        control.press("ArrowRight")
