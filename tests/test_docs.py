"""Every block and every command of the site's pages runs, reduced; what needs a cluster is checked as far as it can be."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest

from benchmarks.pages.fix_cards import fix_card
from eureka.attention.registry import FIXES
from tests.pages import (
    ROOT,
    Block,
    blocks,
    check_shell,
    check_words,
    inline_commands,
    own_modules,
    run_page,
    write_log,
    write_script,
)

PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if path.stem not in ("regimes", "coverage", "coverage_starts", "promises", "evidence", "performance")
)
SBATCH = {
    *(
        "job-name",
        "nodes",
        "ntasks",
        "cpus-per-task",
        "mem",
        "time",
        "signal",
        "requeue",
        "output",
        "error",
        "partition",
        "account",
    ),
    *("array", "dependency", "gres", "gpus", "mail-type", "mail-user", "exclusive", "constraint", "chdir", "ntasks-per-node"),
}
"""Options of sbatch, from its manual; not all of them."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path)
    write_script(tmp_path)
    text = page.read_text(encoding="utf-8")
    with own_modules(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of Trainer and Lightning about this machine
        assert run_page(text, tmp_path) > 0
    for command in inline_commands(text):
        check_words(shlex.split(command)[1:])


@pytest.mark.parametrize("name", FIXES.names())
def test_the_lines_of_a_card_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    card = blocks(fix_card(FIXES.entry(name)))
    exec(compile(next(block.text for block in card if block.language == "python"), name, "exec"), {})
    assert capsys.readouterr().out == "1 attention layer\n"
    check_words(shlex.split(next(block.text for block in card if block.language == "sh"))[1:])


def job_script() -> Block:
    (script,) = [
        block for block in blocks((ROOT / "docs/howto/slurm.md").read_text(encoding="utf-8")) if block.language == "bash"
    ]
    return script


def test_the_job_script_is_what_sbatch_reads() -> None:
    text = job_script().text
    check_shell(text)
    assert text.startswith("#!")
    options = re.findall(r"^#SBATCH (.*)$", text, flags=re.MULTILINE)
    assert len(options) == text.count("#SBATCH") >= 8
    for option in options:
        match = re.fullmatch(r"--([a-z-]+)(?:=(\S+))?", option)
        assert match, option
        assert match[1] in SBATCH, option
    first = next(number for number, line in enumerate(text.splitlines()) if line and not line.startswith("#"))
    assert "#SBATCH" not in "\n".join(text.splitlines()[first:])  # sbatch stops reading at the first command


def test_the_command_of_the_job_script_is_one_of_ours() -> None:
    command = next(line for line in job_script().text.splitlines() if line.startswith("exec eureka "))
    check_words(shlex.split(command.replace("$SLURM_CPUS_PER_TASK", "16"))[2:])


def test_a_page_with_a_fault_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for fault in (
        "```python\n1 / 0\n```\n",
        "```sh\neureka detect gone.csv\n```\n",
        "```sh\nif\n```\n",
        "```sh\nunheard-of\n```\n",
    ):
        with pytest.raises((ZeroDivisionError, AssertionError)):
            run_page(fault, tmp_path)
