"""The cost model of window joins against the numbers that its paper prints."""

from __future__ import annotations

import pytest

from semistream.cost.window_join import (
    INDEX_NAMES,
    LETTERS,
    PAIRS,
    IndexName,
    Pair,
    TouchedTuples,
    WindowWorkload,
    best_pair,
    ceil_log,
    cost_of_pairs,
    crossovers,
    direction_cost,
    equal_cost_ratio,
    join_cost,
    output_rows_per_s,
)

PAPER = TouchedTuples()
NAMES: dict[str, IndexName] = {letter: name for name, letter in LETTERS.items()}
WITHOUT_B_PLUS_TREE: tuple[IndexName, ...] = ("scan", "hash", "t-tree")
"""The paper leaves the B+tree out of its figures."""

FIGURE_4: dict[str, WindowWorkload] = {
    "a": WindowWorkload(rate_a=2, rate_b=998, window_a=9500, window_b=500),
    "b": WindowWorkload(rate_a=800, rate_b=200, window_a=7000, window_b=3000),
    "c": WindowWorkload(rate_a=550, rate_b=450, window_a=4000, window_b=6000),
}
TABLE_3: dict[str, dict[str, float]] = {
    "a": {"HH": 7.06, "TT": 9.56, "HT": 10.89, "TH": 5.74, "HN": 5.99, "NH": 2845.87, "TN": 4.67, "NT": 2849.69},
    "b": {"HH": 7.06, "TT": 11.85, "HT": 6.46, "TH": 12.46, "HN": 722.39, "NH": 424.87, "TN": 727.78, "NT": 424.27},
    "c": {"HH": 7.06, "TT": 11.60, "HT": 8.93, "TH": 9.73, "HN": 993.42, "NH": 543.84, "TN": 996.09, "NT": 545.71},
}


def pair(letters: str) -> Pair:
    return NAMES[letters[0]], NAMES[letters[1]]


@pytest.mark.parametrize(
    ("figure", "letters", "printed"),
    [(figure, letters, printed) for figure, row in TABLE_3.items() for letters, printed in row.items()],
)
def test_a_cell_of_table_3_comes_out_to_two_decimals(figure: str, letters: str, printed: float) -> None:
    assert round(join_cost(PAPER, pair(letters), FIGURE_4[figure]), 2) == printed


def test_the_printed_update_of_a_t_tree_misses_every_cell_with_a_t_tree() -> None:
    """Equation 7 as printed has the 2 before the first term only."""

    class AsPrinted(TouchedTuples):
        def touched_by_update(self, index: IndexName, window_rows: float) -> float:
            if index != "t-tree":
                return super().touched_by_update(index, window_rows)
            inside_a_node = ceil_log(self.node_rows, 2)
            return 2 * (self.touched_by_probe(index, window_rows) - inside_a_node) + inside_a_node

    missed = {
        letters
        for figure, row in TABLE_3.items()
        for letters, printed in row.items()
        if round(join_cost(AsPrinted(), pair(letters), FIGURE_4[figure]), 2) != printed
    }
    assert missed == {letters for letters in TABLE_3["a"] if "T" in letters}


def test_the_crossovers_of_figure_2_are_the_papers() -> None:
    found = crossovers(PAPER, 5000, 5000, WITHOUT_B_PLUS_TREE)
    shares = [100 * crossover.share_a for crossover in found]
    assert [f"{shares[0]:.2f}", f"{shares[1]:.1f}", f"{shares[2]:.1f}", f"{shares[3]:.2f}"] == [
        "0.09",
        "21.6",
        "78.4",
        "99.91",
    ]
    assert [crossover.before for crossover in found] == [pair(letters) for letters in ("TN", "TH", "HH", "HT")]
    assert found[-1].after == pair("NT")


@pytest.mark.parametrize("window_rows", [500, 5000, 20_000])
def test_equation_8_is_a_case_of_the_general_crossover(window_rows: int) -> None:
    assert equal_cost_ratio(PAPER, "scan", "hash", window_rows) == pytest.approx(13.6 / (3 * window_rows - 55))


def test_a_window_of_500_is_scanned_when_its_stream_is_106_times_faster() -> None:
    ratio = equal_cost_ratio(PAPER, "scan", "hash", 500)
    assert ratio is not None
    assert round(ratio, 4) == 0.0094
    assert int(1 / ratio) == 106


def test_buckets_of_two_leave_two_crossovers() -> None:
    found = crossovers(TouchedTuples(bucket_rows=2), 5000, 5000, WITHOUT_B_PLUS_TREE)
    assert [(crossover.before, crossover.after) for crossover in found] == [
        (pair("HN"), pair("HH")),
        (pair("HH"), pair("NH")),
    ]


def test_two_indexes_cost_the_same_at_their_crossover() -> None:
    for window_rows in (150, 5000):
        for one in INDEX_NAMES:
            for other in INDEX_NAMES:
                ratio = equal_cost_ratio(PAPER, one, other, window_rows)
                if ratio is None:
                    continue
                costs = [
                    direction_cost(PAPER, index, probing_rate=ratio, updating_rate=1.0, window_rows=window_rows)
                    for index in (one, other)
                ]
                assert costs[0] == pytest.approx(costs[1])


def test_the_best_pair_between_crossovers_is_the_one_that_they_name() -> None:
    for window_a, window_b in ((5000, 5000), (9500, 500), (100, 20_000)):
        found = crossovers(PAPER, window_a, window_b)
        for crossover in found:
            for share, named in ((0.999 * crossover.share_a, crossover.before), (crossover.share_a, crossover.after)):
                moved = share + 1e-9
                assert best_pair(PAPER, WindowWorkload(moved, 1 - moved, window_a, window_b)) == named


def test_the_winners_of_figure_4_are_the_papers() -> None:
    winners = {figure: best_pair(PAPER, workload, WITHOUT_B_PLUS_TREE) for figure, workload in FIGURE_4.items()}
    assert winners == {"a": pair("TN"), "b": pair("HT"), "c": pair("HH")}


def test_all_sixteen_pairs_are_priced_and_the_cheapest_is_first() -> None:
    bills = cost_of_pairs(PAPER, FIGURE_4["b"])
    assert set(bills) == set(PAIRS)
    assert len(PAIRS) == 16
    assert list(bills.values()) == sorted(bills.values())


def test_no_hash_is_chosen_where_it_is_not_allowed() -> None:
    for workload in FIGURE_4.values():
        assert "hash" not in best_pair(PAPER, workload, ("scan", "b+tree", "t-tree"))


def test_a_window_inside_one_node_has_no_levels() -> None:
    assert PAPER.touched_by_probe("t-tree", 100) == 7
    assert PAPER.touched_by_probe("b+tree", 100) == 7
    assert PAPER.touched_by_probe("b+tree", 5000) == 14


def test_the_output_rate_is_equation_12() -> None:
    assert output_rows_per_s(WindowWorkload(800, 200, 100, 200), 0.01) == pytest.approx(1800)
