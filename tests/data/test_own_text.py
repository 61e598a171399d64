"""A text of the user's own: what is read, how it is named in a config, and one sentence for what cannot be used."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import AfterValidator
from torch import Generator
from typer.testing import CliRunner

from eureka.cli.main import app
from eureka.data import text
from eureka.data.own_text import own_documents, pinned
from eureka.errors import RequestError, UnknownNameError
from eureka.recipes import recipe
from eureka.registry import Registry
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


SENTENCES = "".join(chr(0x4E00 + number * number % 997) + "。" * (number % 13 == 0) for number in range(20_000))


@pytest.mark.parametrize(
    "content",
    [
        SENTENCES,
        SENTENCES.replace("。", ""),
        "".join(chr(97 + number * number % 23) for number in range(100_000)),
        "a few words first " + "".join(chr(97 + number * number % 23) for number in range(5_000)),
        "\n".join(["x"] * 120 + [SENTENCES]),
    ],
    ids=["sentences", "characters", "letters", "words and letters", "lines and characters"],
)
def test_text_without_spaces_is_cut_within_lines(tmp_path: Path, content: str) -> None:
    path = tmp_path / "line.txt"
    path.write_text(content, encoding="utf-8")
    documents = own_documents(pinned(str(path)))
    assert "".join(documents) == content
    assert 50 <= len(documents) <= 101
    assert max(map(len, documents)) <= len(content) * 0.03
    held_out = sum(map(len, text.split_documents(documents)[1]))
    assert held_out == pytest.approx(len(content) / 10, rel=0.2)


def test_pieces_within_a_line_end_with_sentences_where_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    assert all(document.endswith("。") for document in own_documents(pinned(str(path)))[:-1])


def test_chinese_in_one_line_can_be_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text(SENTENCES, encoding="utf-8")
    task = MaskedText(corpus=str(path), vocabulary=400)
    assert task.sample(2, Generator().manual_seed(0), "validation").inputs.shape == (2, 64)


def folder_of(folder: Path, contents: list[str]) -> Path:
    folder.mkdir()
    for number, content in enumerate(contents):
        (folder / f"{number:02}.txt").write_text(content)
    return folder


def test_eleven_empty_files_and_a_long_one_are_cut_into_pieces_and_the_empty_ones_are_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "texts", ["".join(LINES), *[""] * 10, "  \n"])
    documents = own_documents(pinned(str(folder)))
    assert "".join(documents) == "".join(LINES)
    assert 85 <= len(documents) <= 101
    task = MaskedText(corpus=str(folder), vocabulary=300, length=16)
    assert "Passed over: 11 empty files (01.txt, 02.txt, 03.txt, …)." in task.about()


def test_where_one_file_is_most_of_the_text_a_tenth_is_held_out_all_the_same(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "texts", ["".join(LINES[:2])] * 9 + ["".join(LINES)])
    train, held_out = text.split_documents(own_documents(pinned(str(folder))))
    share = sum(map(len, held_out)) / sum(map(len, train + held_out))
    assert share == pytest.approx(0.1, abs=0.03)


def test_a_large_folder_keeps_its_split_also_where_little_of_it_is_held_out(tmp_path: Path) -> None:
    contents = [*["word " * 300_000] * 9, "word " * 3_000]
    assert own_documents(pinned(str(folder_of(tmp_path / "texts", contents)))) == contents


def test_lines_of_very_different_lengths_are_still_the_pieces_of_a_file(tmp_path: Path) -> None:
    lines = ["word " * 3_800 + "\n", *["a chapter\n"] * 150]
    path = tmp_path / "lines.txt"
    path.write_text("".join(lines))
    assert own_documents(pinned(str(path)))[:90] == lines[:90]


@pytest.mark.parametrize("empty", [3, 9, 14])
def test_an_empty_file_changes_nothing_where_a_fair_share_is_held_out(tmp_path: Path, empty: int) -> None:
    contents = ["".join(LINES[number * 5 : number * 5 + 7]) for number in range(20)]
    contents[empty] = ""
    folder = folder_of(tmp_path / "texts", contents)
    assert own_documents(pinned(str(folder))) == contents


def test_where_the_files_that_would_be_held_out_are_empty_the_others_are_counted(tmp_path: Path) -> None:
    contents = ["".join(LINES[number * 5 : number * 5 + 7]) for number in range(15)]
    folder = folder_of(tmp_path / "texts", [*contents[:9], "", *contents[9:]])
    assert own_documents(pinned(str(folder))) == contents


def test_a_folder_of_empty_files_is_empty(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "texts", ["", " \n"] * 6)
    with pytest.raises(RequestError, match=r"texts is empty: its 12 files hold no text\.$"):
        MaskedText(corpus=str(folder))


def test_folders_and_links_to_nowhere_do_not_spoil_a_corpus_and_links_are_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "texts", ["".join(LINES)])
    before = pinned(str(folder))
    (folder / "x.txt").mkdir()
    (folder / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    assert pinned(str(folder)) == before
    task = MaskedText(corpus=str(folder), vocabulary=300, length=16)
    assert "held out, a vocabulary of 300. Passed over: 1 link to nowhere (gone.txt). Loss by" in task.about()
    (folder / "00.txt").unlink()
    with pytest.raises(RequestError, match=r"texts holds no \.txt file, only links to nowhere\.$"):
        MaskedText(corpus=str(folder))


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


def test_the_same_text_through_a_link_is_another_run_and_by_a_relative_path_it_is_not(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.txt").symlink_to(file)
    base = recipe("hf/roberta_masked_text")
    first, link, relative = (base.but({"task.corpus": path}).digest() for path in (str(file), "link.txt", "own.txt"))
    assert first == relative != link


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
        (b"three short words", "is too short: it has 17 characters, and about 1,000 are needed"),
        ("春眠不覚暁".encode() * 10, "is too short: it has 50 characters, and about 1,000 are needed"),
        ("".join(LINES).encode(), "is too short for a vocabulary of 2,000: its pairs give"),
    ],
)
def test_a_text_that_cannot_be_used_gets_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"bad\.txt") as error:
        MaskedText(corpus=str(path))
    assert said in str(error.value)
    assert str(error.value).count("\n") == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"to be or not to be " * 40, "is too short: it has 760 characters, and about 1,000 are needed."),
        (
            b"to be or not to be " * 4_000,
            "repeats itself too much: its 76,000 characters give a vocabulary of 266, and the least is 300; "
            "bring more varied text.",
        ),
    ],
)
def test_nobody_is_told_to_set_a_vocabulary_below_the_least(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    for vocabulary in (300, 2_000):
        with pytest.raises(RequestError, match=r"bad\.txt") as error:
            MaskedText(corpus=str(path), vocabulary=vocabulary)
        assert str(error.value) == f"{path} {said}"


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("".join(LINES).encode("utf-16"), "UTF-16"),
        ("\ufeff春眠不覚暁".encode("utf-16-be"), "UTF-16"),
        ("".join(LINES).encode("utf-16-le"), "UTF-16LE"),
        ("".join(LINES).encode("utf-16-be"), "UTF-16BE"),
        ("".join(LINES).encode("utf-32"), "UTF-32"),
    ],
)
def test_the_command_that_wide_text_is_answered_with_converts_it(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "of windows.txt"
    path.write_bytes(content)
    with pytest.raises(RequestError, match=rf"of windows\.txt is {name}, not UTF-8; `iconv .*` converts it\.$") as error:
        own_documents(pinned(str(path)))
    if shutil.which("iconv") is None:
        pytest.skip("iconv is not installed")
    subprocess.run(str(error.value).split("`")[1], shell=True, check=True, cwd=tmp_path)
    encoding = "utf-16" if name == "UTF-16" else "utf-32" if name == "UTF-32" else name
    assert (tmp_path / "utf8.txt").read_text(encoding="utf-8-sig") == content.decode(encoding).removeprefix("\ufeff")


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


def test_no_corpus_is_not_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder_of(tmp_path / "texts", ["".join(LINES)]))
    for nothing in ("", " "):
        with pytest.raises(RequestError, match=r"^task 'masked_text': task\.corpus is empty; name a text file, .* bible\.$"):
            recipe("hf/roberta_masked_text").but({"task.corpus": nothing})


def test_a_corpus_that_is_refused_when_a_run_is_planned_is_one_sentence(tmp_path: Path) -> None:
    base = recipe("hf/roberta_masked_text")
    with pytest.raises(RequestError) as error:
        base.but({"task.corpus": str(tmp_path / "x")})
    where = f"there is no corpus {tmp_path}/x; name a text file, a folder of .txt files, or sotu, moby_dick, bible."
    assert str(error.value) == f"task 'masked_text': {where}"
    with pytest.raises(RequestError) as error:
        base.but({"task.corpus": "mobydick"})
    known = "bible, moby_dick, sotu, the path of a text file or of a folder."
    assert str(error.value) == f"task 'masked_text': unknown corpus 'mobydick'; did you mean 'moby_dick'? Known: {known}"


def even(value: int) -> int:
    if value % 2:
        raise ValueError("an even number is needed.")
    return value


class Boxes:
    def __init__(self, *, side: Annotated[int, AfterValidator(even)] = 2) -> None: ...


def test_what_a_check_of_somebody_else_says_is_joined_with_a_colon_and_ends_with_one_stop() -> None:
    with pytest.raises(RequestError, match=r"Boxes': side = 3: an even number is needed\.$"):
        Registry[Boxes]("box", []).choose(Boxes, {"side": 3})


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
    file.write_bytes(b"caf\xe9")
    refused = CliRunner().invoke(app, [*words[:-1], f"task.corpus={file}"])
    assert refused.exit_code != 0
    assert "not UTF-8" in str(refused.exception)
