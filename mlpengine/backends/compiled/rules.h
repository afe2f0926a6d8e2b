/* Functions that formulas call, for float and double.  The error of v_sigmoid is at most 3 units in the
   last place. */

INLINE vec v_abs(vec x) { return vmax(x, -x); }
INLINE vec v_sqrt(vec x) {
#if defined(WITH_MASKS) && !defined(__clang__)
  return PACKED(sqrt, 512_mask)(x, (vec){0}, (lane_bits)-1, 4);
#elif defined(WITH_BLENDS) && !defined(__clang__)
  return PACKED(sqrt, 256)(x);
#else
  vec y;
  UNROLL for (int64_t i = 0; i < LANES; i++) y[i] = sizeof(real) == 4 ? sqrtf(x[i]) : sqrt(x[i]);
  return y;
#endif
}

/* 1 where `mask` is set, else 0; NaN * 0 is NaN, so that a product with this factor keeps NaN. */
INLINE vec one_where(ivec mask) { return vselect(mask, splat(1), splat(0)); }

/* e / (1 + e) with e = exp(x).  For x >= 40, the result rounds to 1. */
INLINE vec v_sigmoid(vec x) {
  vec e = v_exp_bounded(vmin(x, splat(40)));
  return quotient(e, splat(1) + e);
}

/* log(1 + exp(-|x|)), accurate at every magnitude: log(u) + (e - (u - 1)) / u, where the second
   term corrects the rounding of u = 1 + e. */
INLINE vec v_log1p_exp_of_minus_abs(vec x) {
  vec e = v_exp_bounded(-v_abs(x));
  vec u = splat(1) + e;
  return v_log(u) + quotient(e - (u - splat(1)), u);
}

/* Further functions that formulas call. */
#define v_not(mask) (~(mask))
INLINE vec v_maximum(vec a, vec b) { return vselect(b != b, b, vmax(a, b)); }
INLINE vec v_minimum(vec a, vec b) { return vselect(b != b, b, vmin(a, b)); }
INLINE vec v_sign(vec x) {
  return vselect(x > splat(0), splat(1), vselect(x < splat(0), splat(-1), x));
}
INLINE vec v_softplus(vec x) { return vmax(x, splat(0)) + v_log1p_exp_of_minus_abs(x); }

/* Phi(x), the normal distribution function.  For z >= 39, Phi(-z) is 0 in float and double. */
INLINE vec v_normal_cdf(vec x) {
  vec z = vmin(v_abs(x), splat(39));
  vec tail = splat(0.5) * v_erfc(z * splat((real)0.70710678118654752440));
  return vselect(x > splat(0), splat(1) - tail, tail);
}

/* Functions that the C library computes lane by lane. */
#define LANE_BY_LANE(kind, name, c_name)                                                           \
  kind vec name(vec x) {                                                                           \
    for (int64_t i = 0; i < LANES; i++) x[i] = sizeof(real) == 4 ? c_name##f(x[i]) : c_name(x[i]); \
    return x;                                                                                      \
  }
LANE_BY_LANE(INLINE, v_log1p, log1p)
LANE_BY_LANE(INLINE, v_log2, log2)

/* sin and cos; if any lane has a large angle, the C library computes all lanes. */
INLINE int64_t has_large_angles(vec x) {
  return any_lane(~((x <= splat(LARGEST_ANGLE)) & (x >= splat(-LARGEST_ANGLE))));
}
#define SINE(name, turns)                                                            \
  LANE_BY_LANE(SHARED, name##_by_lane, name)                                         \
  INLINE vec v_##name(vec x) {                                                       \
    return has_large_angles(x) ? name##_by_lane(x) : sine_of_quarters(x, turns);     \
  }
SINE(sin, 0)
SINE(cos, 1)

INLINE vec v_pow(vec x, real n) {
  for (int64_t i = 0; i < LANES; i++) x[i] = sizeof(real) == 4 ? powf(x[i], n) : pow(x[i], n);
  return x;
}
