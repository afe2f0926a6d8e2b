/* What several rules are made of, for either type of number. */

INLINE vec v_abs(vec x) { return larger(x, -x); }
INLINE vec v_sqrt(vec x) {
  vec y;
  UNROLL for (long i = 0; i < LANES; i++) y[i] = sizeof(real) == 4 ? sqrtf(x[i]) : sqrt(x[i]);
  return y;
}

/* 1 where `mask` is set and 0 elsewhere: to multiply with, so that a NaN is not hidden. */
INLINE vec one_where(ivec mask) { return choose(mask, splat(1), splat(0)); }

/* e / (1 + e) with e = exp(x); above the bound, where exp would overflow, it is 1 already. */
INLINE vec v_sigmoid(vec x) {
  vec e = v_exp(smaller(x, splat(EXP_LIMIT)));
  return e / (splat(1) + e);
}

/* log(1 + exp(-|x|)), to the last digits however small: log(u) + (e - (u - 1)) / u, where the
   second term is what rounding u = 1 + e took. */
INLINE vec v_log1p_exp_of_minus_abs(vec x) {
  vec e = v_exp(-v_abs(x));
  vec u = splat(1) + e;
  return v_log(u) + (e - (u - splat(1))) / u;
}
