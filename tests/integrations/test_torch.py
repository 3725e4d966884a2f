"""PyTorch objectives: the same steps as in JAX, both ways of taking the agents, and the way in and
back."""

import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo

torch = pytest.importorskip("torch")

from decibo.integrations import pytorch as bridge  # noqa: E402

AGENTS = 4
NETWORK = decibo.ring(AGENTS)
METHOD = decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=10.0)


def solved(problem, method=METHOD, **settings):
    return decibo.solve(
        problem, NETWORK, method, **{"steps": 50, "measures": ["outer", "inner"]} | settings
    )


@pytest.fixture(scope="module")
def quadratic():
    """The same quadratic in both, run for 50 steps in JAX."""
    problem = decibo.problems.quadratic(agents=AGENTS)

    def outer(x, y, d):
        curved = 0.5 * x @ d["P"] @ x + x @ d["B"] @ y + 0.5 * y @ d["A"] @ y
        return curved + d["p"] @ x + d["q"] @ y

    def inner(x, y, d):
        return 0.5 * y @ d["H"] @ y + x @ d["J"] @ y + d["s"] @ y

    data = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), problem.data)
    return (
        problem,
        (outer, inner, data, torch.zeros(3).double(), torch.zeros(4).double()),
        solved(problem),
    )


def apart(one, other):
    """The largest difference of two trees, as a number."""
    return max(
        float(np.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


@pytest.mark.parametrize("together", [True, False])
def test_the_same_quadratic_takes_the_same_steps(quadratic, together):
    _, given, in_jax = quadratic
    in_torch = solved(bridge.problem(*given, together=together))
    assert apart((in_torch.agents.x, in_torch.agents.y), (in_jax.agents.x, in_jax.agents.y)) < 1e-6
    for name in ("outer", "inner"):
        assert np.allclose(in_torch.history[name], in_jax.history[name], rtol=0, atol=1e-9)


def small_network():
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)
    return torch.nn.Sequential(*layers).double()


@pytest.fixture(scope="module")
def both_networks():
    """A small network with a penalty to choose, in torch and in JAX."""
    model = small_network()
    generator = torch.Generator().manual_seed(1)
    names = ("training", "checked")
    data = {name: torch.randn(AGENTS, 7, 6, generator=generator).double() for name in names}
    data |= {
        f"{name} labels": torch.randint(0, 3, (AGENTS, 7), generator=generator) for name in names
    }
    call = torch.func.functional_call

    def outer(x, y, d):
        return torch.nn.functional.cross_entropy(call(model, y, d["checked"]), d["checked labels"])

    def inner(x, y, d):
        loss = torch.nn.functional.cross_entropy(
            call(model, y, d["training"]), d["training labels"]
        )
        return loss + torch.exp(x) * sum(torch.sum(leaf**2) for leaf in y.values())

    def scores(y, rows):
        return jnp.tanh(rows @ y["0.weight"].T + y["0.bias"]) @ y["2.weight"].T + y["2.bias"]

    def entropy(found, labels):
        return -jnp.mean(jax.nn.log_softmax(found)[jnp.arange(7), labels])

    def jax_outer(x, y, d):
        return entropy(scores(y, d["checked"]), d["checked labels"])

    def jax_inner(x, y, d):
        penalty = jnp.exp(x) * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(y))
        return entropy(scores(y, d["training"]), d["training labels"]) + penalty

    plain = decibo.Problem(jax_outer, jax_inner, bridge.arrays(data), -3.0, bridge.arrays(model))
    return model, (outer, inner, data, -3.0, model), solved(plain)


@pytest.mark.parametrize("together", [True, False])
def test_the_same_network_takes_the_same_steps(both_networks, together):
    _, given, in_jax = both_networks
    in_torch = solved(bridge.problem(*given, together=together))
    assert sorted(in_torch.y) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    assert apart((in_torch.agents.x, in_torch.agents.y), (in_jax.agents.x, in_jax.agents.y)) < 1e-6
    assert apart(in_torch.y, bridge.arrays(small_network())) > 1e-2  # and they are steps
    assert apart(in_torch.history["outer"], in_jax.history["outer"]) < 1e-9


@pytest.mark.parametrize("together", [True, False])
def test_steps_in_pieces_as_on_a_gpu_are_the_same(both_networks, together):
    """What is done on a GPU, on a CPU: compiled pieces with torch in between, and arrays that are
    not copied."""
    _, given, in_jax = both_networks
    in_pieces = solved(bridge.problem(*given, together=together, pieces=True))
    assert (
        apart((in_pieces.agents.x, in_pieces.agents.y), (in_jax.agents.x, in_jax.agents.y)) < 1e-12
    )
    like = jnp.ones(3)
    tensor = torch.arange(64.0, dtype=torch.float64)
    assert bridge._on_device(tensor, like).unsafe_buffer_pointer() == tensor.data_ptr()
    assert bridge._tensor(like, None, bridge.CPU).data_ptr() == like.unsafe_buffer_pointer()


def test_steps_run_in_pieces_only_where_jax_and_torch_share_a_gpu(both_networks, monkeypatch):
    _, given, _ = both_networks
    assert not bridge.problem(*given).outer_gradient.on_device
    for backend, device, shared in (
        ("gpu", "cuda:1", True),
        ("gpu", "cpu", False),
        ("cpu", "cuda", False),
    ):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        assert bridge._shared(torch.device(device)) is shared


def test_a_solution_goes_back_into_the_module(both_networks):
    _, given, in_jax = both_networks
    fresh = small_network()
    bridge.load(fresh, in_jax.y)
    rows = given[2]["checked"][0]
    assert apart(bridge.arrays(fresh), in_jax.y) == 0
    assert torch.equal(
        torch.func.functional_call(given[4], bridge.tensors(in_jax.y), rows), fresh(rows)
    )
    with pytest.raises(
        decibo.InputError,
        match=r"with the names 0\.bias, 0\.weight, 2\.bias, 2\.weight, but they are a",
    ):
        bridge.load(fresh, {"a": 1.0})
    with pytest.raises(
        decibo.InputError, match=r"has the shape \(5, 6\), but the new value has \(4, 5, 6\)"
    ):
        bridge.load(fresh, in_jax.agents.y)


def test_frozen_parameters_stay_where_they_are():
    model = small_network()
    model[0].requires_grad_(False)
    assert sorted(bridge.arrays(model)) == ["2.bias", "2.weight"]


def test_types_survive(quadratic):
    """Labels stay int64 and weights bfloat16, whatever JAX keeps."""
    kinds = set()

    def outer(x, y, d):
        kinds.update({("y", y.dtype), ("labels", d["labels"].dtype), ("rows", d["rows"].dtype)})
        return torch.sum(y * d["rows"][d["labels"]]) + 0 * x

    data = {
        "labels": torch.zeros(AGENTS, 2, dtype=torch.int64),
        "rows": np.zeros((AGENTS, 3), np.float32),
    }
    start = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    problem = bridge.problem(outer, outer, data, torch.zeros(()), start)
    assert problem.y0.dtype == jnp.bfloat16
    assert problem.y0.tolist() == [1.0, 2.0]
    assert kinds == {("y", torch.bfloat16), ("labels", torch.int64), ("rows", torch.float32)}


def test_nothing_is_copied_on_the_way_in():
    array = np.arange(6.0)
    array.flags.writeable = False
    assert bridge._tensor(array, None, "cpu").data_ptr() == array.ctypes.data
    tensor = torch.ones(3)
    assert bridge.arrays(tensor).ctypes.data == tensor.data_ptr()


def test_minibatches_are_drawn_by_a_function_of_jax():
    rows = torch.arange(16.0, dtype=torch.float64).reshape(AGENTS, 2, 2)
    loss = lambda x, y, d: (y - d.mean(0) - x).square().sum()
    draw = lambda d, key: d[jax.random.choice(key, 2, (1,))]
    problem = bridge.problem(
        loss, loss, rows, torch.zeros(2).double(), torch.zeros(2).double(), sample=draw
    )
    end = solved(problem, decibo.minibatch(METHOD), steps=30)
    assert end.status == "done"
    assert end.history["outer"][-1] != solved(problem, steps=30).history["outer"][-1]


def test_what_is_wrong_is_said_before_the_loop(quadratic):
    _, (outer, inner, data, x0, y0), _ = quadratic
    rejected = {
        r"inner\(x0, y0, data of one agent\) raised KeyError": (
            outer,
            lambda x, y, d: d["Q"],
            data,
            x0,
            y0,
        ),
        r"one number, but outer returns a tensor of the shape \(4,\)": (
            lambda x, y, d: y,
            inner,
            data,
            x0,
            y0,
        ),
        r"outer must be a function": (1.0, inner, data, x0, y0),
    }
    for words, given in rejected.items():
        with pytest.raises(decibo.InputError, match=words):
            bridge.problem(*given, together=False)
    with pytest.raises(decibo.InputError, match="cannot compute on the device 'abacus'"):
        bridge.problem(outer, inner, data, x0, y0, device="abacus")
    with pytest.raises(
        decibo.InputError, match=r"If torch\.func\.vmap does not take it, pass together=False"
    ):
        bridge.problem(lambda x, y, d: y.sum() * y.sum().item(), inner, data, x0, y0)


def test_single_precision_is_not_silently_taken_for_double(quadratic):
    _, given, _ = quadratic
    with (
        jax.enable_x64(False),
        pytest.raises(decibo.InputError, match="JAX is in single precision"),
    ):
        bridge.problem(*given)


def test_methods_with_second_derivatives_refuse(quadratic):
    _, given, _ = quadratic
    problem = bridge.problem(*given)
    with pytest.raises(
        decibo.InputError,
        match=r"sldbo needs products .* outside JAX\. Use .* decibo\.ahead_exact\(\)",
    ):
        solved(problem, decibo.methods.sldbo(alpha=0.1, beta=0.1, gamma=0.1))


def test_the_example_runs(monkeypatch, capsys):
    """A few steps of it; the page shows what all of them print."""
    example = Path(__file__).parents[2] / "examples" / "personalisation.py"
    monkeypatch.setattr(sys, "argv", [str(example), "--quick"])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.startswith("done: 10 offices")
    assert "nan" not in printed


def lying(model, inner):
    """The problem with this inner loss of a small network, whose outer loss is right."""
    call = torch.func.functional_call
    rows = torch.randn(AGENTS, 7, 6, generator=torch.Generator().manual_seed(2)).double()
    outer = lambda x, y, d: call(model, y, d).square().mean()
    return bridge.problem(outer, inner, rows, torch.zeros(()).double(), model, together=False)


@pytest.mark.parametrize(
    "loss", [lambda model, d: model(d), lambda model, d: model[2](model[1](model[0](d)))]
)
def test_the_weights_of_the_module_in_place_of_y_are_found(loss):
    model = small_network()
    decay = lambda y: sum(part.square().sum() for part in y.values())
    for inner in (
        lambda x, y, d: loss(model, d).square().mean() + x.exp() * decay(y),
        lambda x, y, d: loss(model, d).square().mean() + x**2,
        lambda x, y, d: decay(y) + x.exp() * sum(p.square().sum() for p in model.parameters()),
    ):
        with pytest.raises(decibo.InputError, match="inner uses the module's own weights"):
            lying(model, inner)


def test_arguments_that_a_loss_ignores_are_found():
    model = small_network()
    call = torch.func.functional_call
    with pytest.raises(decibo.InputError, match="inner does not depend on y"):
        lying(model, lambda x, y, d: x**2)
    with pytest.warns(UserWarning, match=r"Neither outer nor inner depends on x\."):
        lying(model, lambda x, y, d: call(model, y, d).square().mean())
    with pytest.warns(UserWarning, match=r"depends on y\['2\.bias'\], y\['2\.weight'\]"):
        bridge.problem(
            lambda x, y, d: y["0.weight"].sum() + y["0.bias"].sum(),
            lambda x, y, d: x * y["0.weight"].square().sum() + y["0.bias"].square().sum(),
            torch.ones(AGENTS, 2).double(),
            torch.ones(()).double(),
            model,
        )


def test_a_detached_weight_a_dropout_and_a_batch_norm_are_found():
    model = small_network()
    call = torch.func.functional_call

    def weighted(x, y, d):
        loss = call(model, y, d).square().mean(1)
        return (loss.detach().sigmoid() * loss).mean() + x.exp() * y["2.bias"].square().sum()

    with pytest.warns(UserWarning, match=r"gradient of inner is not .* Is there a detach\(\)"):
        lying(model, weighted)
    decay = lambda x, y: x.exp() * sum(part.square().sum() for part in y.values())
    for layer, words in (
        (torch.nn.Dropout(0.5), "inner must return the same .* it draws random numbers"),
        (torch.nn.BatchNorm1d(5).double(), "The layer 1 is a BatchNorm1d, whose running"),
    ):
        unfit = torch.nn.Sequential(
            torch.nn.Linear(6, 5).double(), layer, torch.nn.Linear(5, 3).double()
        )
        inner = lambda x, y, d, net=unfit: call(net, y, d).square().mean() + decay(x, y)
        rows = torch.ones(AGENTS, 7, 6).double()
        with pytest.raises(decibo.InputError, match=words):
            bridge.problem(
                lambda x, y, d: y["0.bias"].sum(), inner, rows, 0.0, unfit, together=False
            )
        if isinstance(layer, torch.nn.Dropout):
            unfit.eval()
            bridge.problem(
                lambda x, y, d: y["0.bias"].sum(), inner, rows, 0.0, unfit, together=False
            )


def test_a_data_loader_is_refused_in_words():
    rows = torch.utils.data.TensorDataset(torch.ones(8, 3))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    loss = lambda x, y, d: (y - x).square().sum()
    for data in (loader, [loader] * 4):
        with pytest.raises(
            decibo.InputError, match=r"it holds a DataLoader or a Dataset .* sample="
        ):
            bridge.problem(loss, loss, data, torch.zeros(3), torch.zeros(3))
