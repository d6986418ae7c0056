"""The count of a module's arithmetic operations."""

from __future__ import annotations

import pytest

import hloom as hl
from hloom.analysis.flops import count_flops

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"


def flops(entry: str, *computations: str) -> int | None:
    return count_flops(hl.parse("\n".join(["HloModule m", *computations, f"ENTRY e {{ {entry} }}"])))


def test_element_wise_operations_count_one_an_element_and_data_movement_nothing() -> None:
    assert (
        flops("x = f32[4,5] parameter(0) t = f32[5,4] transpose(x), dimensions={1,0} ROOT y = f32[5,4] tanh(t)") == 20
    )


def test_a_dot_counts_two_for_each_product() -> None:
    text = (
        "x = f32[3,4,5] parameter(0) y = f32[3,5,6] parameter(1) ROOT d = f32[3,4,6] dot(x, y), "
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    assert flops(text) == 2 * 3 * 4 * 6 * 5


@pytest.mark.parametrize("groups, inputs", [(1, 8), (4, 2)])
def test_a_convolution_counts_the_taps_of_its_group_for_each_output(groups: int, inputs: int) -> None:
    text = (
        f"x = f32[2,10,10,8] parameter(0) k = f32[3,3,{inputs},16] parameter(1) ROOT c = f32[2,8,8,16] "
        f"convolution(x, k), window={{size=3x3}}, dim_labels=b01f_01io->b01f, feature_group_count={groups}"
    )
    assert flops(text) == 2 * (2 * 8 * 8 * 16) * (3 * 3 * inputs)


def test_a_reduction_counts_its_computation_for_each_input_element() -> None:
    text = "x = f32[6,7] parameter(0) z = f32[] constant(0) ROOT r = f32[6] reduce(x, z), dimensions={1}, to_apply=add"
    assert flops(text, ADD) == 42


def test_a_scatter_counts_its_computation_for_each_update() -> None:
    text = (
        "x = f32[100] parameter(0) i = s32[8,1] parameter(1) u = f32[8] parameter(2) ROOT s = f32[100] "
        "scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
        "index_vector_dim=1, to_apply=add"
    )
    assert flops(text, ADD) == 8


def test_a_fourier_transform_counts_five_n_log_n_and_half_of_it_if_real() -> None:
    assert flops("x = c64[3,8] parameter(0) ROOT f = c64[3,8] fft(x), fft_type=FFT, fft_length={8}") == 5 * 24 * 3
    assert flops("x = f32[3,8] parameter(0) ROOT f = c64[3,5] fft(x), fft_type=RFFT, fft_length={8}") == 5 * 24 * 3 // 2


def loop(
    start: int, step: int, limit: int, direction: str, counter: str = "add(i, one)", config: str = ""
) -> int | None:
    state = "(s32[], f32[10])"
    condition = (
        f"condition {{ t = {state} parameter(0) i = s32[] get-tuple-element(t), index=0 "
        f"n = s32[] constant({limit}) ROOT c = pred[] compare(i, n), direction={direction} }}"
    )
    body = (
        f"body {{ t = {state} parameter(0) i = s32[] get-tuple-element(t), index=0 one = s32[] constant({step}) "
        f"next = s32[] {counter} x = f32[10] get-tuple-element(t), index=1 y = f32[10] sine(x) "
        f"ROOT r = {state} tuple(next, y) }}"
    )
    entry = (
        f"x = f32[10] parameter(0) i = s32[] constant({start}) t = {state} tuple(i, x) "
        f"ROOT w = {state} while(t), condition=condition, body=body{config}"
    )
    return flops(entry, condition, body)


@pytest.mark.parametrize(
    "start, step, limit, direction, trips",
    [(0, 1, 7, "LT", 7), (1, 2, 7, "LE", 4), (7, -1, 0, "GT", 7), (7, -3, 1, "GE", 3), (5, 1, 5, "LT", 0)],
)
def test_a_counted_loop_counts_condition_and_body_in_each_iteration(
    start: int, step: int, limit: int, direction: str, trips: int
) -> None:
    assert loop(start, step, limit, direction) == trips * (1 + 1 + 10)
    assert loop(start, step, limit, direction, "add(one, i)") == trips * (1 + 1 + 10)


def test_a_loop_counts_with_the_trip_count_of_the_compiler() -> None:
    config = ', backend_config={"known_trip_count":{"n":"5"}}'
    assert loop(0, 1, 7, "NE", config=config) == 5 * (1 + 1 + 10)


@pytest.mark.parametrize(
    "counter, step, direction", [("multiply(i, one)", 2, "LT"), ("add(i, one)", 1, "NE"), ("add(i, one)", 0, "LT")]
)
def test_other_loops_are_unknown(counter: str, step: int, direction: str) -> None:
    assert loop(0, step, 7, direction, counter) is None


def test_calls_count_what_they_call_and_branches_where_they_agree() -> None:
    sine = "sine { x = f32[10] parameter(0) ROOT y = f32[10] sine(x) }"
    twice = "twice { x = f32[10] parameter(0) s = f32[10] sine(x) ROOT y = f32[10] sine(s) }"
    call = "x = f32[10] parameter(0) a = f32[10] call(x), to_apply=twice ROOT b = f32[10] call(a), to_apply=twice"
    assert flops(call, twice) == 40
    branch = (
        "p = pred[] parameter(0) x = f32[10] parameter(1) ROOT c = f32[10] conditional(p, x, x), "
        "true_computation=sine, false_computation="
    )
    assert flops(branch + "sine", sine) == 10
    assert flops(branch + "twice", sine, twice) is None


def test_counts_that_depend_on_the_algorithm_are_unknown() -> None:
    assert flops("x = f32[3,3] parameter(0) ROOT c = f32[3,3] cholesky(x), lower=true") is None
