/* Vectorized exp, expm1, log, tanh, erfc, sin and cos of doubles.  For normal numbers, errors are up to
   2 units in the last place (tanh: 3 if the target cannot fuse multiply and add).  Absolute errors of
   sin and cos are up to 3e-16, of erfc 1e-15.  NaN stays NaN.  The coefficients are minimax fits with
   errors below a tenth of a unit; formula/numpy_functions.py has the same coefficients of erfc. */

/* 2^n for whole n in -1022 to 1023. */
INLINE vec power_of_two(ivec n) { return (vec)((n + 1023) << 52); }

/* Split x into n ln 2 + r with |r| <= ln 2 / 2, and return (exp(r) - 1 - r) / r^2. */
INLINE vec exp_parts(vec x, ivec *n, vec *r) {
  const vec shift = splat(6755399441055744.0); /* 1.5 * 2^52: adding it rounds to a whole number */
  vec t = multiply_add(x, splat(1.4426950408889634), shift);
  vec whole = shift - t; /* minus n */
  *n = (ivec)t - (ivec)shift;
  *r = multiply_add(whole, splat(6.93147180369123816490e-01), x);
  *r = multiply_add(whole, splat(1.90821492927058770002e-10), *r);
  return POLYNOMIAL(*r, 2.0924535132321916e-09, 2.5109151945231553e-08, 2.7557242474881183e-07,
                    2.7557243909322727e-06, 2.480158736086938e-05, 0.0001984126988639088,
                    0.0013888888888866694, 0.008333333333321542, 0.0416666666666667,
                    0.16666666666666677, 0.5);
}

/* exp(x) for x <= 710.  2^n is split into two factors, so that neither overflows. */
INLINE vec v_exp_bounded(vec x) {
  ivec n;
  vec r;
  vec p = exp_parts(vmax(x, splat(-746.0)), &n, &r);
  ivec half = n >> 1;
  vec y = multiply_add(p, r * r, r) + splat(1.0);
  return y * power_of_two(half) * power_of_two(n - half);
}
INLINE vec v_exp(vec x) { return v_exp_bounded(vmin(x, splat(710.0))); }

/* exp(x) - 1 for x <= 709. */
INLINE vec v_expm1_below_0(vec x) {
  ivec n;
  vec r;
  vec p = exp_parts(vmax(x, splat(-50.0)), &n, &r);
  vec scale = power_of_two(n);
  return multiply_add(scale, multiply_add(p, r * r, r), scale - splat(1.0));
}

/* exp(x) - 1.  For x > 50, 1 is less than half a unit in the last place of exp(x). */
INLINE vec v_expm1(vec x) {
  return vselect(x > splat(50.0), v_exp(x), v_expm1_below_0(vmin(x, splat(50.0))));
}

/* log(x) = e ln 2 + log(1 + f) for x = 2^e (1 + f), where log(1 + f) = 2 s + s^3 (2 / 3 + ...) with
   s = f / (2 + f).  To keep digits, f is added last. */
INLINE vec v_log(vec x) {
  const ivec shift = (ivec)splat(6755399441055744.0);
  ivec e = ((ivec)x - 0x3fe6a09e667f3bcd) >> 52; /* so that the mantissa lies around 1 */
  vec f = (vec)((ivec)x - (e << 52)) - splat(1.0);
  vec k = (vec)(e + shift) - (vec)shift;
  vec s = f / (splat(2.0) + f), z = s * s;
  vec p = POLYNOMIAL(z, 0.14792107332161786, 0.1531446383185581, 0.1818354673618585,
                     0.2222219894776363, 0.28571428738251137, 0.3999999999943656,
                     0.6666666666666731);
  vec square = splat(0.5) * f * f;
  vec tail = multiply_add(k, splat(1.90821492927058770002e-10), s * multiply_add(p, z, square));
  vec y = multiply_add(k, splat(6.93147180369123816490e-01), f - (square - tail));
  y = vselect(x < splat(2.2250738585072014e-308), splat(-INFINITY), y);
  y = vselect(x < splat(0.0), splat(NAN), y);
  return vselect((x == splat(INFINITY)) | (x != x), x, y);
}

/* tanh(|x|) = e / (e + 2) with e = expm1(2 |x|), then the sign of x.  For x > 20, it rounds to 1. */
INLINE vec v_tanh(vec x) {
  ivec n;
  vec r;
  ivec sign = (ivec)x & INT64_MIN;
  vec size = (vec)((ivec)x ^ sign);
  vec p = exp_parts(vmin(size + size, splat(40.0)), &n, &r);
  vec scale = power_of_two(n);
  vec e = multiply_add(scale, multiply_add(p, r * r, r), scale - splat(1.0));
  vec d = e + splat(2.0), lost = e - (d - splat(2.0));
  vec inverse = splat(1.0) / d, y = e * inverse;
  /* correct the rounding errors of the quotient and of d */
  y = multiply_add(multiply_add(-y, lost, multiply_add(-y, d, e)), inverse, y);
  return (vec)((ivec)y | sign);
}

/* 1 - erf(x) for x >= 0, as 2 exp(-z^2 / 2) P((z - 4) / (z + 4)) with z^2 = 2 x^2. */
INLINE vec v_erfc(vec x) {
  vec z = x * splat(1.4142135623730951), u = splat(1.0) - splat(8.0) / (z + splat(4.0));
  vec p = POLYNOMIAL(u, -2.937582190108851e-07, -2.1702928440787017e-06, -4.53476373343744e-06,
                     6.719493309597361e-06, 3.2466482329984035e-05, -4.181450784089393e-05,
                     -0.00018477121180645199, 0.0006398940389323332, 0.0005078998182259286,
                     -0.0084920233526665, 0.030864814028916717, -0.0717074065740202,
                     0.12437925535760685, -0.17039772154963587, 0.09441064130191382);
  return splat(2.0) * p * v_exp(-(x * x));
}

/* sin(x + turns pi / 2) for |x| up to LARGEST_ANGLE; for larger |x|, see SINE.  The first two terms of
   pi / 2 have 33 bits, so that their products with integers below 2^20 are exact. */
#define LARGEST_ANGLE 1e6
INLINE vec sine_of_quarters(vec x, const bits turns) {
  const vec shift = splat(6755399441055744.0); /* 1.5 * 2^52: adding it rounds to a whole number */
  vec t = multiply_add(x, splat(0.63661977236758134308), shift);
  vec whole = shift - t; /* minus the number of quarters */
  ivec quarter = (ivec)t + turns;
  vec r = multiply_add(whole, splat(1.57079632673412561417e+00), x);
  r = multiply_add(whole, splat(6.07710050630396597660e-11), r);
  r = multiply_add(whole, splat(2.02226624879595063154e-21), r);
  vec z = r * r;
  vec sine = POLYNOMIAL(z, 1.5896988574676793e-10, -2.5050761827770138e-08, 2.755731371892007e-06,
                        -0.00019841269829899122, 0.008333333333322554);
  sine = multiply_add(multiply_add(sine, z, splat(-0.16666666666666632)), z * r, r);
  vec cosine = POLYNOMIAL(z, -1.136130310144232e-11, 2.087575806039999e-09, -2.755731463434286e-07,
                          2.4801587290576083e-05, -0.0013888888888876133, 0.041666666666666616);
  cosine = multiply_add(cosine, z * z, multiply_add(splat(-0.5), z, splat(1.0)));
  vec y = vselect((quarter & 1) == 1, cosine, sine);
  return (vec)((ivec)y ^ ((quarter & 2) << 62));
}
