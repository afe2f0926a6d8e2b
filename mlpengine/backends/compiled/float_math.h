/* Vectorized exp, expm1, log, tanh, erfc, sin and cos of floats.  For normal numbers, errors are up to
   2 units in the last place (tanh: 3 if the target cannot fuse multiply and add).  Absolute errors of
   erfc, sin and cos are up to 1.3e-7.  NaN stays NaN.  The coefficients are minimax fits with relative
   errors below 1e-8. */

#define SHIFT splat(12582912.0f) /* 1.5 * 2^23: adding it rounds to a whole number */

/* x 2^n for whole n = `shifted` - SHIFT in -252 to 254. */
INLINE vec scale_by_power(vec x, vec shifted) {
#if defined(WITH_MASKS)
  return PACKED(scalef, 512_mask)(x, shifted - SHIFT, x, (lane_bits)-1, 4);
#else
  ivec n = (ivec)shifted - (ivec)SHIFT, half = n >> 1; /* neither factor overflows */
  return x * (vec)((half + 127) << 23) * (vec)((n - half + 127) << 23);
#endif
}

/* Split x into n ln 2 + r with |r| <= ln 2 / 2, and return (exp(r) - 1 - r) / r^2. */
INLINE vec exp_parts(vec x, vec *shifted, vec *r) {
  *shifted = multiply_add(x, splat(1.44269504088896f), SHIFT);
  vec n = SHIFT - *shifted; /* minus n */
  *r = multiply_add(n, splat(0.693145751953125f), x);
  *r = multiply_add(n, splat(1.42860682030941723e-6f), *r);
  return POLYNOMIAL(*r, 0.00139517173f, 0.00836959841f, 0.04166618728f, 0.16666512888f,
                    0.50000001010f);
}

/* exp(x) for x <= 89. */
INLINE vec v_exp_bounded(vec x) {
  vec n, r;
  vec p = exp_parts(vmax(x, splat(-105.0f)), &n, &r);
  return scale_by_power(multiply_add(p, r * r, r) + splat(1.0f), n);
}
INLINE vec v_exp(vec x) { return v_exp_bounded(vmin(x, splat(89.0f))); }

/* exp(x) - 1 for x <= 88. */
INLINE vec v_expm1_below_0(vec x) {
  vec n, r;
  vec p = exp_parts(vmax(x, splat(-105.0f)), &n, &r);
  vec scale = scale_by_power(splat(1.0f), n);
  return multiply_add(scale, multiply_add(p, r * r, r), scale - splat(1.0f));
}

/* exp(x) - 1.  For x > 40, 1 is less than half a unit in the last place of exp(x). */
INLINE vec v_expm1(vec x) {
  return vselect(x > splat(40.0f), v_exp(x), v_expm1_below_0(vmin(x, splat(40.0f))));
}

INLINE vec v_log(vec x) {
  ivec e = ((ivec)x - 0x3f3504f3) >> 23; /* so that the mantissa lies around 1 */
  vec f = (vec)((ivec)x - (e << 23)) - splat(1.0f);
  vec k = __builtin_convertvector(e, vec);
  vec p = POLYNOMIAL(f, 0.06746605988f, -0.11676403682f, 0.11888610835f, -0.12405485477f,
                     0.14219470246f, -0.16667999265f, 0.20002123425f, -0.25000009597f,
                     0.33333312520f);
  vec square = f * f;
  vec tail = multiply_add(k, splat(1.42860682030941723e-6f), p * (square * f));
  tail = multiply_add(splat(-0.5f), square, tail);
  vec y = multiply_add(k, splat(0.693145751953125f), f + tail);
  y = vselect(x < splat(1.17549435e-38f), splat(-INFINITY), y);
  y = vselect(x < splat(0.0f), splat(NAN), y);
  return vselect((x == splat(INFINITY)) | (x != x), x, y);
}

/* tanh(|x|) = e / (e + 2) with e = expm1(2 |x|), then the sign of x.  For x > 10, it rounds to 1; for
   smaller x, 2^n does not overflow and needs no second factor. */
INLINE vec v_tanh(vec x) {
  vec n, r;
  ivec sign = (ivec)x & (bits)0x80000000;
  vec size = (vec)((ivec)x ^ sign);
  vec p = exp_parts(vmin(size + size, splat(20.0f)), &n, &r);
  vec scale = (vec)(((ivec)n << 23) + 0x3f800000); /* SHIFT + n has n in its lowest bits */
  vec e = multiply_add(scale, multiply_add(p, r * r, r), scale - splat(1.0f));
  vec d = e + splat(2.0f), lost = e - (d - splat(2.0f));
  vec inverse = inverse_roughly(d), y = e * inverse;
  /* correct the rounding errors of the quotient and of d */
  y = multiply_add(multiply_add(-y, lost, multiply_add(-y, d, e)), inverse, y);
  return (vec)((ivec)y | sign);
}

/* 1 - erf(x) for x >= 0.  Above 4, the value is less than 2e-8, and the result is 0. */
INLINE vec v_erfc(vec x) {
  vec size = vmin(x, splat(4.0f));
  vec z = size * size;
  vec p = POLYNOMIAL(z, 7.88911951995e-05f, -8.02084127465e-04f, 5.18953533855e-03f,
                     -2.68544445914e-02f, 1.12836001762e-01f, -3.76126271360e-01f, 1.12837916591f);
  vec near = multiply_add(-p, size, splat(1.0f));
  /* log(1 - erf(x)) for x from 1 to 4 */
  vec q = POLYNOMIAL(size, 1.86777619372e-04f, -2.95188275127e-03f, 2.18563349976e-02f,
                     -1.03148015777e-01f, -6.38093513685e-01f, -1.12712252864f,
                     -3.32682343935e-04f);
  vec far = vselect(x > splat(4.0f), splat(0.0f), v_exp(q));
  return vselect(size < splat(1.0f), near, far);
}

/* sin(x + turns pi / 2) for |x| up to LARGEST_ANGLE; for larger |x|, see SINE.  The first two terms of
   pi / 2 have few digits, so that the remainder r has an error of at most 1e-7.
   Source of the coefficients: Cephes, sinf.c (Moshier 1992). */
#define LARGEST_ANGLE 8192.0f
INLINE vec sine_of_quarters(vec x, const bits turns) {
  const vec shift = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
  vec t = multiply_add(x, splat(0.636619772367581f), shift);
  vec whole = shift - t; /* minus the number of quarters */
  ivec quarter = (ivec)t + turns;
  vec r = multiply_add(whole, splat(1.5703125f), x);
  r = multiply_add(whole, splat(4.837512969970703125e-4f), r);
  r = multiply_add(whole, splat(7.549789948768648e-8f), r);
  vec z = r * r;
  vec sine = splat(-1.9515295891e-4f);
  sine = multiply_add(sine, z, splat(8.3321608736e-3f));
  sine = multiply_add(multiply_add(sine, z, splat(-1.6666654611e-1f)), z * r, r);
  vec cosine = POLYNOMIAL(z, 2.443315711809948e-5f, -1.388731625493765e-3f, 4.166664568298827e-2f);
  cosine = multiply_add(cosine, z * z, multiply_add(splat(-0.5f), z, splat(1.0f)));
  vec y = vselect((quarter & 1) == 1, cosine, sine);
  return (vec)((ivec)y ^ ((quarter & 2) << 30));
}
