"""A benchmark of methods: weigh down wrong labels in data that nobody may see as a whole.

Five clinics share a model. Three in ten of their training labels are wrong, and nobody knows which.
x holds one logit of trust for each training sample: the inner level fits the model to trusted
samples, the outer level judges it on a few clean validation samples. Descent on the outer level
lowers the trust in samples that harm validation. To find wrong labels there is something simpler
that does better, and the last line has it: train on the clean samples alone, and sort by loss.

    python examples/data_cleaning.py [--quick]
"""

import sys

import jax
import jax.numpy as jnp

import decibo
from decibo.problems.cleaning import cross_entropy

STEPS = 400 if "--quick" in sys.argv else 4000


def main():
    problem = decibo.problems.hyper_cleaning(agents=5, training=200, validation=200, corruption=0.3)
    wrong = decibo.problems.hyper_cleaning_mask(problem)
    # Phi is flat in x: each of 200 logits does little
    method = decibo.ahead_exact(alpha=100.0, gamma=0.5, lam=100.0)
    solution = decibo.solve(
        problem, decibo.ring(5), method, steps=STEPS, measures=["outer", "consensus_x"]
    )
    trust = jax.nn.sigmoid(solution.x)
    print(f"{int(wrong.sum())} of {len(wrong)} training labels are wrong")
    print(
        f"validation loss from {solution.history['outer'][0]:.3f} to"
        f" {solution.history['outer'][-1]:.3f}"
    )
    print(
        f"mean trust in right labels {float(trust[~wrong].mean()):.3f}, in wrong ones"
        f" {float(trust[wrong].mean()):.3f}"
    )
    share = decibo.problems.hyper_cleaning_separation(problem, solution.x)
    print(
        f"a right label is trusted more than a wrong one in {share:.1%} of all pairs (50% would be"
        " a guess)"
    )
    least = jnp.argsort(trust)[: int(wrong.sum())]
    print(f"of the {len(least)} least trusted labels {int(wrong[least].sum())} are wrong")
    clean, noisy = (
        jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), problem.data[kind])
        for kind in ("validation", "training")
    )
    loss = lambda w: clean["weights"] @ cross_entropy(w, clean) / 5 + 0.005 * jnp.sum(w**2)
    w = jax.lax.fori_loop(0, 500, lambda k, w: w - 0.5 * jax.grad(loss)(w), jnp.zeros((64, 10)))
    order = jnp.argsort(jnp.asarray(noisy["index"]))  # as in x
    share = decibo.problems.hyper_cleaning_separation(problem, -cross_entropy(w, noisy)[order])
    print(f"sorted by the loss of a model of the clean samples alone: {share:.1%} of all pairs")
    print(
        "Look at: the last three lines. No clinic sent its samples to another, and none knew which"
        " labels are wrong."
    )


if __name__ == "__main__":
    main()
