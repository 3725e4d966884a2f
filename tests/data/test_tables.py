"""Tables from files: one for all silos or one for each, and what is refused, with file and line."""

import sys

import numpy as np
import pandas
import pytest

import decibo
from decibo.data import Encoding, read_table
from decibo.errors import InputError

CSV = "age,plan,churned,shop\n31,gold,yes,a\n,silver,no,b\n45,?,no,a\n52,gold,yes,b\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "all.csv"
    path.write_text(CSV)
    return path


def test_a_file_with_a_silo_column(file):
    X, y, groups = read_table(file, label="churned", silo="shop")
    assert list(X) == ["age", "plan"]
    np.testing.assert_array_equal(X["age"], [31, np.nan, 45, 52])
    assert X["plan"].fillna("gap").tolist() == ["gold", "silver", "gap", "gold"]
    assert y.tolist() == ["yes", "no", "no", "yes"]
    assert groups.tolist() == ["a", "b", "a", "b"]
    said = str(read_table(file, label="churned", silo="shop"))
    assert said == "Table(4 rows: a 2, b 2; columns: age, plan)"


def test_one_file_for_each_silo_in_csv_and_parquet(file, tmp_path):
    other = tmp_path / "more.parquet"
    frame = pandas.DataFrame(
        {"age": [20, 30], "plan": ["gold", None], "churned": ["no", "yes"], "shop": ["c", "c"]}
    )
    frame.to_parquet(other)
    table = read_table([file, other], label="churned", drop=["shop"])
    assert table.groups.tolist() == ["all"] * 4 + ["more"] * 2
    assert len(table.X) == 6
    named = read_table({"north": file, "south": other}, label="churned", drop=["shop"])
    assert sorted(set(named.groups)) == ["north", "south"]


def test_columns_that_are_read_and_left_out(file, tmp_path):
    other = tmp_path / "more.csv"
    other.write_text("plan,age,churned,room\ngold,30,no,7\nunknown,,yes,8\n")
    X, y, _ = read_table([file, other], "churned", missing=["unknown"], drop=["shop", "room"])
    assert sorted(X) == ["age", "plan"]
    assert X["plan"].isna().tolist() == [False, False, True, False, False, True]
    X, y, _ = read_table([file, other], "churned", columns=["age"])
    assert list(X) == ["age"]
    assert len(y) == 6
    with pytest.raises(InputError, match="drop names 'rom', but no file"):
        read_table([file, other], drop=["rom", "room", "shop"])


def test_codes_are_read_as_text_if_asked(file):
    table = read_table(file, label="churned", silo="shop", categories=["age"])
    assert table.X["age"].fillna("gap").tolist() == ["31", "gap", "45", "52"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age,plan\n1,a\n2\n", r"line 3 has 1 cells, but the first line names 2"),
        ("age,age\n1,2\n", "two columns called 'age'"),
        (
            "age,churned\n1,yes\nancient,no\n",
            r"Column 'age' .*line 2 has a number and .*line 3 has text.*missing=",
        ),
        ("age,churned\n1,yes\n2,\n", r"column 'churned', but .*line 3 has none"),
        ("age,plan\n1,a\n", "has no column 'churned'. It has age, plan"),
        ("age,churned\n", "no rows"),
        ("", "no rows"),
        ('age,churned\n"1,yes\n', "cannot be read as CSV"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, text, words):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=f"(?s){words}") as error:
        read_table(path, label="churned" if "churned" in text + words else None)
    assert str(path) in str(error.value)
    assert "ancient" not in str(error.value)  # other processes see the message


def test_files_must_agree(tmp_path):
    (tmp_path / "a.csv").write_text("age,plan\n1,x\n")
    (tmp_path / "b.csv").write_text("age,plan\nold,x\n")
    (tmp_path / "c.csv").write_text("age,plans\n1,x\n")
    (tmp_path / "d.parquet").write_text("no parquet")
    both = lambda name: read_table([tmp_path / "a.csv", tmp_path / name])
    with pytest.raises(InputError, match=r"'age' holds text in .*b\.csv and numbers in .*a\.csv"):
        both("b.csv")
    with pytest.raises(InputError, match=r"same columns, but differ in .*plans.*drop="):
        both("c.csv")
    with pytest.raises(InputError, match=r"d\.parquet cannot be read as parquet"):
        both("d.parquet")
    with pytest.raises(InputError, match=r"e\.csv cannot be read: No such file"):
        both("e.csv")
    with pytest.raises(InputError, match="two files have the same name"):
        both("a.csv")


def test_without_pandas(monkeypatch, file):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas.*decibo\[table\]"):
        read_table(file)


def test_an_encoding_is_that_of_the_pooled_table_whoever_has_the_rows():
    """Three processes, played one after another: what each shares is written down until all have
    spoken."""
    random = np.random.default_rng(0)
    ages = np.where(random.random(30) < 0.2, np.nan, random.normal(50, 9, 30))
    plans = random.choice(["a", "b", "c", None], 30)
    frames = [pandas.DataFrame({"age": ages[k::3], "plan": plans[k::3]}) for k in range(3)]
    frames[1]["age"] = np.nan  # nothing but gaps in one silo
    spoken = []

    def play(k):
        turn = iter(range(10))

        def share(value):
            step = next(turn)
            if len(spoken) <= step:
                spoken.append({})
            spoken[step][k] = value
            if len(spoken[step]) < 3:
                raise InterruptedError
            return [spoken[step][each] for each in range(3)]

        try:
            return Encoding.fit(frames[k], share)
        except InterruptedError:
            return None

    for _ in range(10):
        fitted = [play(k) for k in range(3)]
        if all(fitted):
            break
    pooled = pandas.concat(frames)
    known = pooled["age"].dropna()
    for encoding in fitted:
        assert encoding.numbers["age"] == pytest.approx((known.mean(), known.std(ddof=0)))
        assert encoding.words == {"plan": ("a", "b", "c")}
        assert encoding.features == ("age", "plan=a", "plan=b", "plan=c")
    features = fitted[0](pooled)
    assert features.shape == (30, 4)
    assert np.isfinite(features).all()
    assert (features[pooled["age"].isna().to_numpy(), 0] == 0).all()
    assert (features[:, 1:].sum(axis=1) == pooled["plan"].notna()).all()


def test_unknown_categories_and_wrong_columns():
    encoding = Encoding.fit({"a": [1.0, 3.0], "b": ["x", "y"]})
    assert encoding({"a": [2.0], "b": ["new"]}).tolist() == [[0, 0, 0]]
    with pytest.raises(InputError, match="differ in 'b', 'c'"):
        encoding({"a": [1.0], "c": ["x"]})
    with pytest.raises(InputError, match="Column 'a' must hold numbers, but row 0 has text"):
        encoding({"a": ["one"], "b": ["x"]})
    assert Encoding.fit(np.arange(6.0).reshape(3, 2)).features == ("x0", "x1")


def test_a_table_becomes_a_dataset_for_ready_made_problems(tmp_path):
    random = np.random.default_rng(0)
    for shop in ("north", "south"):
        lines = [
            f"{random.normal():.3f},{random.choice(['x', 'y', ''])},{random.choice(['no', 'yes'])}"
            for _ in range(20)
        ]
        (tmp_path / f"{shop}.csv").write_text("a,b,label\n" + "\n".join(lines))
    data = read_table(sorted(tmp_path.glob("*.csv")), label="label").dataset()
    assert set(data.labels) == {-1.0, 1.0}
    assert data.columns == ("a", "b=x", "b=y")
    assert len(data.labels) + len(data.test_labels) == 40
    problem = decibo.problems.logistic_hyperparameters(data, split="by_group")
    assert problem.agents == 2
