"""A text of the user's own: what is read, how it is named in a config, and one sentence for what cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from eureka.cli.main import app
from eureka.data import text
from eureka.data.own_text import own_documents, pinned
from eureka.errors import RequestError, UnknownNameError
from eureka.recipes import recipe
from eureka.tasks.masked_text import MaskedText

pytest.importorskip("tokenizers", reason="tokenizers is not installed")

LINES = [
    f"the {animal} number {number} sees the {animal} on its left\n" for number in range(60) for animal in ("cat", "dog", "owl")
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path / "cache"))
    text.encoded_corpus.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text("".join(LINES))
    return path


def test_a_file_is_cut_into_a_hundred_pieces_at_the_ends_of_lines_and_none_is_lost(file: Path) -> None:
    documents = own_documents(pinned(str(file)))
    assert "".join(documents) == "".join(LINES)
    assert 85 <= len(documents) <= 101
    assert all(document.endswith("\n") for document in documents)


def test_one_long_line_is_cut_at_words(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text(" ".join(f"word{number}" for number in range(500)))
    documents = own_documents(pinned(str(path)))
    assert "".join(documents) == path.read_text()
    assert len(documents) >= 50


def test_files_of_a_folder_are_documents_in_the_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "b").mkdir(parents=True)
    for number in range(12):
        (folder / ("b" if number % 2 else ".") / f"{number:02}.txt").write_text(f"text {number}\n")
    (folder / "notes.md").write_text("this is not read")
    documents = own_documents(pinned(str(folder)))
    assert sorted(documents) == sorted(f"text {number}\n" for number in range(12))
    assert documents == own_documents(pinned(str(folder)))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(LINES).encode())
    assert own_documents(pinned(str(path)))[0].startswith("the cat")


def test_another_content_is_another_config_and_a_text_that_changed_under_a_run_is_refused(file: Path) -> None:
    base = recipe("hf/roberta_masked_text")
    first = base.but({"task.corpus": str(file), "task.vocabulary": 300})
    assert first.but({}).digest() == base.but({"task.corpus": str(file), "task.vocabulary": 300}).digest()
    file.write_text("".join(LINES[1:]))
    assert base.but({"task.corpus": str(file), "task.vocabulary": 300}).digest() != first.digest()
    with pytest.raises(RequestError, match=r"own\.txt has changed since this run was planned"):
        first.task.build()


def test_the_encoding_is_learned_once_for_a_content(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = MaskedText(corpus=str(file), vocabulary=300, length=16)
    text.encoded_corpus.cache_clear()
    monkeypatch.setattr(text, "encode", lambda *given: pytest.fail("it was encoded again"))
    copy = tmp_path / "copy.txt"
    copy.write_bytes(file.read_bytes())
    again = MaskedText(corpus=str(copy), vocabulary=300, length=16)
    assert first.rows["train"].tolist() == again.rows["train"].tolist()


def test_it_says_what_was_read_and_the_levels(file: Path) -> None:
    task = MaskedText(corpus=str(file), vocabulary=300, length=16)
    frequent, _, before = task.levels()
    assert f"{len(task.rows['train']):,} tokens to train on" in task.about()
    assert f"Loss by frequency alone {frequent.loss:.3f}, with the token before {before.loss:.3f}." in task.about()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n \n", "is empty"),
        (b"ab\0cd", "is no text: it holds zero bytes"),
        (b"caf\xe9 au lait", "is not UTF-8: byte 0xe9 at 3; convert it with iconv"),
        (b"three short words", "is too short: it has 3 words"),
        (b"to be or not to be " * 40, "is too short for a vocabulary of 2,000"),
    ],
)
def test_a_text_that_cannot_be_used_gets_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"bad\.txt") as error:
        MaskedText(corpus=str(path))
    assert said in str(error.value)
    assert str(error.value).count("\n") == 0


def test_a_text_with_too_little_held_out_for_an_input_gets_one_sentence(file: Path) -> None:
    with pytest.raises(RequestError, match=r"tokens are held out, and an input has 100,000"):
        MaskedText(corpus=str(file), vocabulary=300, length=100_000)


def test_a_path_that_is_not_there_and_a_name_that_is_nearly_ours(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"there is no corpus .*nowhere\.txt"):
        MaskedText(corpus=str(tmp_path / "nowhere.txt"))
    with pytest.raises(RequestError, match=r"holds no \.txt file"):
        MaskedText(corpus=str(tmp_path))
    with pytest.raises(UnknownNameError, match="did you mean 'moby_dick'"):
        MaskedText(corpus="mobydick")


def test_compare_on_own_text_says_what_it_read_and_a_bad_one_exits_with_two(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [
        "task.vocabulary=300",
        "task.length=16",
        "training.steps=4",
        "training.warmup=0",
        "training.log_every=2",
        "training.batch_size=4",
    ]
    words = ["run", "hf/roberta_masked_text", *(word for one in sets for word in ("--set", one)), "--set", f"task.corpus={file}"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "tokens to train on" in done.output
    assert "Loss by frequency alone" in done.output
    file.write_bytes(b"\xff\xfe")
    refused = CliRunner().invoke(app, [*words[:-1], f"task.corpus={file}"])
    assert refused.exit_code != 0
    assert "not UTF-8" in str(refused.exception)
