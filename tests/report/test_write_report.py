"""The page as a whole: what is in it, what is not, and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from eureka.errors import RequestError, WorkError
from eureka.report.write import write_report, write_report_of
from eureka.runs import Level, Origin, Probes, Readings, RunFolder, TaskRecord, find_runs
from eureka.study.summary import summarise


def test_a_real_study_becomes_one_page_that_says_what_happened(real_study: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([real_study], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No run left the plateau within 30 steps: softmax in 0 of 2 runs; norm_softmax in 0 of 2." in page.text
    assert "task tiles · 4 runs · 2 fixes · 1 learning rate · 2 seeds" in page.text
    assert len(json.loads(page.scripts[0])["runs"]) == 4


def test_the_page_is_written_without_torch(study: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from eureka.report.write import write_report;"
        f"write_report([pathlib.Path({str(study)!r})], pathlib.Path({str(tmp_path / 'page.html')!r}));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


def test_the_sections_come_in_the_order_in_which_people_ask(study: Path, tmp_path: Path, parse: Any) -> None:
    text = parse(write_report([study], tmp_path / "report.html", title="My study").read_text(encoding="utf-8")).text
    landmarks = ["My study", "left the plateau in 3 of 3 runs", "Each curve is one run", "median Eureka-step", "What differs"]
    landmarks += ["What they have in common", "Versions and machine", "When is it a Eureka-moment?", "eureka report"]
    places = [text.rindex(landmark) if landmark == "eureka report" else text.index(landmark) for landmark in landmarks]
    assert places == sorted(places)


def test_the_same_runs_give_the_same_bytes(study: Path, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    assert write_report([study], output).read_bytes() == write_report([study], output).read_bytes()


def test_a_study_that_was_read_and_compared_already_is_not_read_and_compared_again(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "report.html"
    from_folders = write_report([study], output).read_bytes()
    summary = summarise(find_runs(study))
    for name in ("config", "result"):
        monkeypatch.setattr(RunFolder, name, lambda folder: pytest.fail("read again"))
    monkeypatch.setattr("eureka.study.comparison.speed_up", lambda *times: pytest.fail("bootstrapped again"))
    assert write_report_of(summary, output, folders=[study]).read_bytes() == from_folders


def test_a_run_that_is_found_twice_is_drawn_once(study: Path, tmp_path: Path, parse: Any) -> None:
    one = next(study.iterdir())
    page = parse(write_report([study, one, study], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(json.loads(page.scripts[0])["runs"]) == 6


def test_unfinished_runs_are_drawn_and_said_to_be_unfinished(study: Path, tmp_path: Path, plant: Any, parse: Any) -> None:
    plant(study, {"training.seed": 3}, ended=False, reached=300, name="half-way")
    plant(study, {"training.seed": 4}, ended=False, metrics=[], name="waiting")
    page = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "Unfinished and not counted, drawn dashed: 1 run (half-way at step 300)." in page.text
    assert "Not begun: 1 run." in page.text
    assert "softmax in 0 of 3 within 1,200 steps" in page.text
    states = [run["state"] for run in json.loads(page.scripts[0])["runs"]]
    assert sorted(states) == ["finished"] * 6 + ["unfinished"]


def test_a_study_of_which_nothing_has_ended_has_a_page_too(tmp_path: Path, plant: Any, parse: Any) -> None:
    plant(tmp_path / "study", ended=False, reached=100)
    page = parse(write_report([tmp_path / "study"], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "No run has ended yet." in page.text


def test_no_runs_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        write_report([tmp_path], tmp_path / "report.html")
    told = f"no runs found in {tmp_path}; give a folder that `eureka compare` or `eureka run` has written."
    assert str(caught.value) == told
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("foreign", [{"model_type": "gpt2"}, {"model": {"dim": 3}}, {}])
def test_a_config_of_something_else_is_not_taken_for_a_run(tmp_path: Path, foreign: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(foreign))
    with pytest.raises(RequestError, match="no runs found"):
        write_report([tmp_path], tmp_path / "report.html")


def test_a_place_that_cannot_be_written_is_one_sentence(study: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"cannot write .*: No such file or directory\."):
        write_report([study], tmp_path / "nowhere" / "report.html")


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!-- %{x} {{data}} <b>&amp;"


def plant_named(folder: Path, plant: Any, plant_attention: Any, linear_probe: Any, text: str) -> None:
    """Two fixes at two rates, whose every name and text is this one."""
    for seed, lr, fix in itertools.product(range(2), (1e-3, 1e-4), ("softmax", text)):
        changes: dict[str, Any] = {"attention.name": fix, "attention.note": text, "task.name": text, "model.name": f"{lr} {text}"}
        changes |= {"training.seed": seed, "training.lr": lr}
        levels = [Level(text, 0.6238, 0.55), Level(text, 0.0, 1.0)]
        name, origin = f"{seed} {lr} {'a' if fix == text else 'b'} {text.replace('/', '')}", Origin(text, {text: text})
        run = plant(folder, changes, environment={text: text}, leap=400, levels=levels, name=name, origin=origin)
        plant_attention(run, 400)
        run.write_task(TaskRecord(levels, [text] * 5))
        run.write_probes(Probes(linear={"after": Readings(1200, [linear_probe(answer=text)])}))


def test_whatever_is_in_names_and_settings_stays_text(
    tmp_path: Path, plant: Any, plant_attention: Any, linear_probe: Any, parse: Any
) -> None:
    pages = []
    for kind, text in (("calm", "calm"), ("<u>", HOSTILE)):
        plant_named(tmp_path / kind, plant, plant_attention, linear_probe, text)
        source = write_report([tmp_path / kind], tmp_path / f"{kind}.html", title=text).read_text(encoding="utf-8")
        pages.append(parse(source))
    calm, hostile = pages
    assert shape(hostile) == shape(calm)
    assert [name for name, _ in hostile.elements].count("script") == 3
    data = json.loads(hostile.scripts[0])
    assert data["fixes"][1]["name"] == HOSTILE
    assert [picture["name"] for picture in data["readings"]] == [HOSTILE]
    assert hostile.text.count(HOSTILE) > 20


def test_no_template_takes_a_text_as_it_is() -> None:
    templates = resources.files("eureka.report") / "templates"
    sources = [path.read_text(encoding="utf-8") for path in templates.iterdir()]
    assert len(sources) >= 3
    assert not any(re.search(r"\|\s*safe|autoescape|Markup", source) for source in sources)


def shape(page: Any) -> list[tuple[str, list[str]]]:
    """The elements and the names of their attributes."""
    return [(name, sorted(attributes)) for name, attributes in page.elements]


def test_the_page_refers_to_nothing_outside_itself(study: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8"))
    addresses = [attributes[key] for _, attributes in page.elements for key in ("src", "href", "srcset") if key in attributes]
    assert addresses
    assert all(address.startswith("data:") for address in addresses)
    policy = next(
        a["content"] for name, a in page.elements if name == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy
