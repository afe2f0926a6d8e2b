/* What several rules are made of, for either type of number. */

INLINE vec v_abs(vec x) { return vmax(x, -x); }
INLINE vec v_sqrt(vec x) {
  vec y;
  UNROLL for (long i = 0; i < LANES; i++) y[i] = sizeof(real) == 4 ? sqrtf(x[i]) : sqrt(x[i]);
  return y;
}

/* 1 where `mask` is set and 0 elsewhere: to multiply with, so that a NaN is not hidden. */
INLINE vec one_where(ivec mask) { return select(mask, splat(1), splat(0)); }

/* e / (1 + e) with e = exp(x); above the bound, where exp would overflow, it is 1 already. */
INLINE vec v_sigmoid(vec x) {
  vec e = v_exp(vmin(x, splat(EXP_LIMIT)));
  return e / (splat(1) + e);
}

/* log(1 + exp(-|x|)), to the last digits however small: log(u) + (e - (u - 1)) / u, where the
   second term is what rounding u = 1 + e took. */
INLINE vec v_log1p_exp_of_minus_abs(vec x) {
  vec e = v_exp(-v_abs(x));
  vec u = splat(1) + e;
  return v_log(u) + (e - (u - splat(1))) / u;
}

/* The derivative of an exponential unit from its value: `scale` above 0, y + depth elsewhere. */
INLINE vec v_unit_slope(vec y, real depth, real scale) {
  return vmin(y, splat(0)) + select(y > splat(0), splat(scale), splat(depth));
}

#define SQRT_HALF 0.70710678118654752440
#define NORMAL_PEAK 0.39894228040143267794 /* 1 / sqrt(2 pi) */

/* x Phi(x) as max(x, 0) - z Phi(-z), z = |x|, which cancels nowhere; and its derivative.  From 39 on
   Phi(-z) is 0 in either type, so z is bounded there: an infinite z would make NaN of z Phi(-z). */
INLINE vec v_normal_tail(vec z) { return splat(0.5) * v_erfc(z * splat((real)SQRT_HALF)); }
INLINE vec v_gelu_size(vec x) { return vmin(v_abs(x), splat(39)); }
INLINE vec v_gelu(vec x) {
  vec z = v_gelu_size(x);
  return vmax(x, splat(0)) - z * v_normal_tail(z);
}
INLINE vec v_gelu_slope(vec x) {
  vec z = v_gelu_size(x), density = splat((real)NORMAL_PEAK) * v_exp(splat((real)-0.5) * z * z);
  vec below = v_normal_tail(z) - z * density;
  return select(x > splat(0), splat(1) - below, below);
}

/* The same with Phi(x) as (1 + tanh(u)) / 2 = sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
INLINE vec v_gelu_share(vec x) {
  return v_sigmoid(splat((real)(4 * NORMAL_PEAK)) * (x + splat((real)0.044715) * x * x * x));
}
INLINE vec v_gelu_tanh(vec x) { return x * v_gelu_share(x); }
INLINE vec v_gelu_tanh_slope(vec x) {
  vec share = v_gelu_share(x);
  vec inner = splat((real)(4 * NORMAL_PEAK)) * (splat(1) + splat((real)(3 * 0.044715)) * x * x);
  return share + x * share * (splat(1) - share) * inner;
}
