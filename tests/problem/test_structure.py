"""The user's structures and the flat vector, there and back."""

from typing import Any, NamedTuple

import pytest
import torch

from bilevel.problem.structure import Structure


class Pair(NamedTuple):
    left: Any
    right: Any


def numbers(*shape, start=0.0, dtype=torch.float64):
    size = torch.Size(shape).numel()
    return torch.arange(start, start + size, dtype=dtype).view(shape)


STRUCTURES = {
    "tensor": numbers(2, 3),
    "number": torch.tensor(3.0, dtype=torch.float64),
    "dict": {"w": numbers(2, 2), "b": numbers(2, start=9)},
    "tuple": (numbers(2), numbers(1, 3, start=5)),
    "list": [numbers(1), torch.tensor(7.0, dtype=torch.float64)],
    "nested": {"a": [numbers(2), (numbers(1, 2, start=4),)], "b": {"c": numbers(3, start=8)}},
    "one in a list": [numbers(4)],
    "with an empty part": {"a": numbers(0, 3), "b": numbers(2), "c": []},
    "single precision": (numbers(2, dtype=torch.float32),),
    "not contiguous": {"w": numbers(2, 3).T, "s": numbers(8)[::2]},
    "parameters": dict(torch.nn.Linear(2, 3).named_parameters()),
}


def leaves(value):
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def shape_of(value):
    """The containers of a structure, with each tensor's shape in its place."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(shape_of(item) for item in value)
    return value.shape


@pytest.fixture(params=STRUCTURES.values(), ids=STRUCTURES)
def value(request):
    return request.param


def test_round_trip_gives_the_same_containers_shapes_and_numbers(value):
    structure = Structure("x0", value)
    back = structure.unflatten(structure.flatten(value))
    assert shape_of(back) == shape_of(value)
    for new, old in zip(leaves(back), leaves(value), strict=True):
        assert torch.equal(new, old)
        assert new.dtype == old.dtype


def test_flat_vector_is_all_the_numbers_in_order(value):
    structure = Structure("x0", value)
    flat = structure.flatten(value)
    by_hand = [number for leaf in leaves(value) for number in leaf.flatten().tolist()]
    assert flat.tolist() == by_hand
    assert structure.size == len(by_hand)
    assert flat.is_contiguous()
    assert not flat.requires_grad


def test_flattening_copies_so_that_the_users_tensors_stay_theirs(value):
    before = [leaf.detach().clone() for leaf in leaves(value)]
    Structure("x0", value).flatten(value).fill_(-1)
    for leaf, old in zip(leaves(value), before, strict=True):
        assert torch.equal(leaf, old)


def test_unflattened_parts_are_views_through_which_gradients_flow(value):
    structure = Structure("x0", value)
    flat = structure.flatten(value).requires_grad_()
    parts = leaves(structure.unflatten(flat))
    total = sum((k + 1) * part.sum() for k, part in enumerate(parts))
    (gradient,) = torch.autograd.grad(total, flat)
    expected = [k + 1.0 for k, part in enumerate(parts) for _ in range(part.numel())]
    assert gradient.tolist() == expected
    assert all(part.untyped_storage().data_ptr() == flat.data_ptr() for part in parts if len(flat))


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        ({}, ValueError, r"x0 holds no tensor: \{\}"),
        ([[], ()], ValueError, r"x0 holds no tensor"),
        (numbers(0, 2), ValueError, r"x0 has no elements: shapes \[\(0, 2\)\]"),
        (3.0, TypeError, r"x0 must be a tensor.*got float 3\.0"),
        ({"w": None}, TypeError, r"x0\['w'\] must be a tensor.*got NoneType None"),
        ({"w": "abc"}, TypeError, r"x0\['w'\] must be a tensor.*got str 'abc'"),
        ([torch.ones(2), [1.0]], TypeError, r"x0\[1\]\[0\] must be a tensor"),
        (torch.tensor([1, 2]), ValueError, r"x0 has dtype torch.int64.*\.double\(\)"),
        (torch.tensor([True]), ValueError, r"x0 has dtype torch.bool"),
        (torch.ones(2, dtype=torch.complex64), ValueError, r"x0 has dtype torch.complex64"),
        (torch.tensor([1.0, float("nan")]), ValueError, r"x0 holds 1 values that are NaN"),
        ({"a": torch.tensor([-float("inf")] * 3)}, ValueError, r"x0\['a'\] holds 3 values"),
        (torch.eye(2).to_sparse(), ValueError, r"x0 has layout torch.sparse_coo"),
        (
            torch.nn.Parameter(torch.ones(2), requires_grad=False),
            ValueError,
            r"x0 is a frozen parameter",
        ),
        (
            {"a": torch.ones(2), "b": torch.ones(2).double()},
            ValueError,
            r"x0\['b'\] has dtype torch.float64 but x0\['a'\] has torch.float32",
        ),
        (
            (torch.ones(2), torch.ones(2, device="meta")),
            ValueError,
            r"x0\[1\] has device meta but x0\[0\] has cpu",
        ),
    ],
)
def test_what_cannot_be_optimised_raises_with_its_place_and_value(example, error, message):
    with pytest.raises(error, match=message):
        Structure("x0", example)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"w": numbers(2, 2)}, r"was given as .*'w'.*'b'.* but now as"),
        ({"b": numbers(2), "w": numbers(2, 2)}, "but now as"),
        ({"w": numbers(2, 2), "b": numbers(2), "c": numbers(1)}, "but now as"),
        ((numbers(2, 2), numbers(2)), "but now as"),
        (numbers(6), "but now as"),
        ({"w": numbers(4), "b": numbers(2)}, r"x0\['w'\] must be a tensor of shape \(2, 2\)"),
        ({"w": numbers(2, 2), "b": 3.0}, r"x0\['b'\] must be a tensor of shape \(2,\), got 3\.0"),
        (
            {"w": numbers(2, 2), "b": numbers(2, dtype=torch.float32)},
            r"x0\['b'\] has dtype torch.float32 but x0 has torch.float64",
        ),
    ],
)
def test_what_has_another_structure_raises(later, message):
    structure = Structure("x0", STRUCTURES["dict"])
    with pytest.raises(ValueError, match=message):
        structure.flatten(later)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_point_may_be_given_flat(name):
    structure = Structure("x0", STRUCTURES[name])
    flat = structure.flatten(STRUCTURES[name])
    point = structure.point(flat)
    assert point.equal(flat)
    assert point.data_ptr() != flat.data_ptr()


def test_a_flat_point_of_another_type_raises():
    with pytest.raises(ValueError, match=r"x has dtype torch\.float32 but x0 has torch\.float64"):
        Structure("x0", STRUCTURES["dict"]).point(numbers(6, dtype=torch.float32))


def test_named_tuples_keep_their_names():
    example = Pair(numbers(2), [numbers(1), Pair(numbers(3), numbers(1))])
    structure = Structure("x0", example)
    again = structure.unflatten(structure.flatten(example))
    assert isinstance(again, Pair)
    assert isinstance(again.right[1], Pair)
    assert again.right[1].left.equal(example.right[1].left)
