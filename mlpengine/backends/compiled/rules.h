/* Functions that several rules use, for float and double. */

INLINE vec v_abs(vec x) { return vmax(x, -x); }
INLINE vec v_sqrt(vec x) {
  vec y;
  UNROLL for (long i = 0; i < LANES; i++) y[i] = sizeof(real) == 4 ? sqrtf(x[i]) : sqrt(x[i]);
  return y;
}

/* 1 where `mask` is set and 0 elsewhere: a factor, with which NaN stays NaN. */
INLINE vec one_where(ivec mask) { return select(mask, splat(1), splat(0)); }

/* e / (1 + e) with e = exp(x); above the limit, where exp would overflow, it is 1. */
INLINE vec v_sigmoid(vec x) {
  vec e = v_exp(vmin(x, splat(EXP_LIMIT)));
  return e / (splat(1) + e);
}

/* log(1 + exp(-|x|)), accurate at every magnitude: log(u) + (e - (u - 1)) / u, where the second
   term corrects the rounding of u = 1 + e. */
INLINE vec v_log1p_exp_of_minus_abs(vec x) {
  vec e = v_exp(-v_abs(x));
  vec u = splat(1) + e;
  return v_log(u) + (e - (u - splat(1))) / u;
}

/* The functions of formulas for which vectors have no operator. */
#define v_not(mask) (~(mask))
INLINE vec v_maximum(vec a, vec b) { return select(b != b, b, vmax(a, b)); }
INLINE vec v_minimum(vec a, vec b) { return select(b != b, b, vmin(a, b)); }
INLINE vec v_sign(vec x) {
  return select(x > splat(0), splat(1), select(x < splat(0), splat(-1), x));
}
INLINE vec v_softplus(vec x) { return vmax(x, splat(0)) + v_log1p_exp_of_minus_abs(x); }

/* Phi(x), the normal distribution function.  For z >= 39, Phi(-z) is 0 in float and double. */
INLINE vec v_normal_cdf(vec x) {
  vec z = vmin(v_abs(x), splat(39));
  vec tail = splat(0.5) * v_erfc(z * splat((real)0.70710678118654752440));
  return select(x > splat(0), splat(1) - tail, tail);
}

/* Functions of the C library, lane by lane. */
#define LANE_BY_LANE(name)                                                              \
  INLINE vec v_##name(vec x) {                                                          \
    for (long i = 0; i < LANES; i++) x[i] = sizeof(real) == 4 ? name##f(x[i]) : name(x[i]); \
    return x;                                                                           \
  }
LANE_BY_LANE(log1p)
LANE_BY_LANE(log2)
INLINE vec v_pow(vec x, real n) {
  for (long i = 0; i < LANES; i++) x[i] = sizeof(real) == 4 ? powf(x[i], n) : pow(x[i], n);
  return x;
}
