"""What is named, and what is said, is in the field's words: `tools/words.py` has those that were ours."""

from __future__ import annotations

from pathlib import Path

from tools.words import found_in_names, found_in_sentences


def test_nothing_in_the_code_is_named_by_a_word_of_ours() -> None:
    assert list(found_in_names()) == []


def test_no_sentence_has_a_word_of_ours() -> None:
    assert list(found_in_sentences()) == []


def test_a_word_of_ours_is_found_wherever_it_names_something(tmp_path: Path) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "yamlish.py").write_text(
        '"""In good hands."""\n\n'
        "class Teller:\n    told: str\n\n"
        "    def judge(self, company: int) -> None:\n        self.deaf = company  # a chore\n"
    )
    names = [each.split(": say")[0] for each in found_in_names(tmp_path)]
    assert names == [
        'src/yamlish.py:1: module "yamlish"',
        'src/yamlish.py:3: class "Teller"',
        'src/yamlish.py:4: field "told"',
        'src/yamlish.py:6: function "judge"',
        'src/yamlish.py:6: parameter "company"',
        'src/yamlish.py:7: attribute "deaf"',
    ]
    assert list(found_in_sentences(tmp_path)) == ['src/yamlish.py:1: "hands"', 'src/yamlish.py:7: "chore"']


def test_words_that_mean_something_else_are_left_alone(tmp_path: Path) -> None:
    package = tmp_path / "src"
    package.mkdir()
    (package / "wire.py").write_text(
        '"""Understanding a handshake."""\n\nclass ControlPlane:\n    def tell(self) -> int:\n        return 0\n'
    )
    assert list(found_in_names(tmp_path)) == []
    assert list(found_in_sentences(tmp_path)) == []
