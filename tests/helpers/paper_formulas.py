"""A second transcription of the paper's formulas, straight from its TeX with the errata applied,
for comparison.

Deliberately written apart from decibo.theory: scalars in, a dictionary out, the paper's own
symbols.
"""

from math import sqrt


def symbols(mu_g, L_f1, L_g1, L_g2, C_fy, lam):
    s = {}
    s["U_lam^2"] = L_f1**2 + lam**2 * L_g1**2
    s["L_lam"] = L_f1 + lam * L_g1
    s["mu_lam"] = lam * mu_g / 2
    s["L_y"] = L_g1 / mu_g
    s["L_ylam"] = 2 * s["L_lam"] / (lam * mu_g)
    inside = L_f1 + (L_f1 * L_g1 + C_fy * L_g2) / mu_g + C_fy * L_g1 * L_g2 / mu_g**2  # erratum 6
    s["L"] = inside * (1 + s["L_y"])
    s["w_gamma"] = mu_g * L_g1 / (2 * (mu_g + L_g1))
    s["w_beta"] = s["mu_lam"] * s["L_lam"] / (2 * (s["mu_lam"] + s["L_lam"]))
    s["C_in"] = 2 * C_fy / mu_g
    s["C_ou"] = s["C_in"] * (1 + L_g1 / mu_g) * (L_f1 + L_g2 * s["C_in"] / 2)
    s["u_beta"] = lam * L_g1 * s["w_beta"] / s["U_lam^2"]  # erratum 11
    s["p1"] = (96 / s["u_beta"] ** 2 + 48 * L_g1**2 / s["w_gamma"] ** 2 + 24) * L_g1**2
    s["p2"] = (96 / s["u_beta"] ** 2 + 24) * L_g1**2
    s["p3"] = (48 * L_g1**2 / s["w_gamma"] ** 2 + 12) * L_g1**2
    s["kappa"] = max(C_fy, L_f1, L_g1, L_g2) / mu_g
    return s


def limits(mu_g, L_f1, L_g1, L_g2, C_fy, rho, lam, beta, gamma):
    """The lists of bounds on gamma, beta and alpha, in the paper's order."""
    s = symbols(mu_g, L_f1, L_g1, L_g2, C_fy, lam)
    p1, p2, p3 = s["p1"], s["p2"], s["p3"]
    alphas = [
        1 / (2 * s["L"]),
        s["w_gamma"] * gamma / (10 * s["L_y"] * L_g1 * lam),
        s["w_beta"] * beta / (10 * s["L_ylam"] * sqrt(s["U_lam^2"])),  # erratum 12
        (1 - rho) / (12 * lam * sqrt(p1)),
        (1 - rho) * sqrt(p3) / (32 * L_g1 * lam * sqrt(p1)),
        (1 - rho) / (54 * L_g1 * lam),
    ]
    betas = [
        1 / (lam * L_g1),
        1 / (2 * (L_f1 + lam * L_g1)) + 1 / (lam * mu_g),
        (1 - rho) / (10 * lam * sqrt(p2)),
        (1 - rho) * sqrt(p1) / (48 * L_g1 * lam * sqrt(p2)),
        (1 - rho) / (32 * L_g1 * lam),
    ]
    gammas = [
        2 / (mu_g + L_g1),
        (mu_g + L_g1) / (2 * mu_g * L_g1),
        (1 - rho) / (8 * sqrt(p3)),
        (1 - rho) * sqrt(p1) / (24 * L_g1 * sqrt(p3)),
        (1 - rho) / (16 * L_g1),
    ]
    return gammas, betas, alphas


def errors(mu_g, L_f1, L_g1, L_g2, C_fy, b_f, b_g, rho, alpha, beta, gamma, lam):
    """(C, B) of Theorem 1."""
    s = symbols(mu_g, L_f1, L_g1, L_g2, C_fy, lam)
    p1, p2, p3 = s["p1"], s["p2"], s["p3"]
    C = 2 * s["C_ou"] ** 2 / lam**2
    C += 864 * s["C_in"] ** 2 * L_g1**2 * p1 * lam**2 * alpha**2 / (1 - rho) ** 2
    C += 576 * s["C_in"] ** 2 * L_g1**2 * p2 * lam**2 * beta**2 / (1 - rho) ** 2
    B = 24 * p1 * lam**2 * alpha**2 / (1 - rho) ** 2 * b_f**2
    B += 24 * p3 * lam**2 * gamma**2 / (1 - rho) ** 2 * b_g**2
    B += 48 * p2 * lam**2 * beta**2 / (1 - rho) ** 2 * (b_f**2 + lam**2 * b_g**2)
    return C, B


def weights(mu_g, L_f1, L_g1, L_g2, C_fy, rho, alpha, beta, gamma, lam):
    """d_1 to d_5 of the potential (erratum 4)."""
    s = symbols(mu_g, L_f1, L_g1, L_g2, C_fy, lam)
    return (
        12 * s["U_lam^2"] * alpha / (s["w_beta"] * beta),
        12 * L_g1**2 * lam**2 * alpha / (s["w_gamma"] * gamma),
        4 * s["p1"] * alpha * lam**2 / (1 - rho),
        4 * s["p2"] * alpha * lam**2 / (1 - rho),
        4 * s["p3"] * alpha * lam**2 / (1 - rho),
    )
