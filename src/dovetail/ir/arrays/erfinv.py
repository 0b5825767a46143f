"""The inverse of the error function (erfinv)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir.arrays.arithmetic import _ratio
from dovetail.ir.arrays.backends import Array, Namespace, convert_dtype, element, is_narrow
from dovetail.ir.arrays.casts import cast

# M. J. Wichura, Algorithm AS 241: The percentage points of the normal distribution, Appl. Statist. 37 (1988): numerators and
# denominators, highest power first, with a relative error of about 1e-16. Their arguments: for |x| up to 0.85
# (0.85 / 2)^2 - (x / 2)^2, the ratio to be multiplied by x / 2; for other x, with r = sqrt(-log((1 - |x|) / 2)), r - 1.6 for r
# up to 5 and r - 5 for larger r.
QUANTILES: tuple[tuple[Sequence[float], Sequence[float]], ...] = (
    (
        (
            2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
            1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0,
        ),
        (
            5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
            5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0,
        ),
    ),
    (
        (
            7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
            3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0,
        ),
        (
            1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
            6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0,
        ),
    ),
    (
        (
            2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
            2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0,
        ),
        (
            2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
            1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0,
        ),
    ),
)  # fmt: skip


def erfinv(xp: Namespace, x: Array) -> Array:
    """Compute the inverse of the error function with a relative error of about 1e-15 in f64.

    Narrower floats are computed in f64 where the library has f64. The result is infinite at -1 and 1, NaN outside [-1, 1].
    """
    kind = element(x)
    if kind != "f64" and not is_narrow(xp):
        return cast(xp, _erfinv(xp, convert_dtype(xp, x, xp.float64)), kind)
    return _erfinv(xp, x)


def _erfinv(xp: Namespace, x: Array) -> Array:
    size = xp.abs(x)
    with np.errstate(all="ignore"):
        half = x / 2
        middle = half * _ratio(0.180625 - half * half, *QUANTILES[0])
        r = xp.sqrt(-xp.log(xp.where(size < 1, (1 - size) / 2, xp.full_like(x, 0.5))))
        outer = xp.where(r <= 5, _ratio(r - 1.6, *QUANTILES[1]), _ratio(r - 5, *QUANTILES[2]))
        outer = xp.where(size < 1, outer, xp.where(size == 1, xp.full_like(x, xp.inf), xp.full_like(x, xp.nan)))
        return xp.where(size <= 0.85, middle, xp.copysign(outer, x)) * 0.5**0.5
