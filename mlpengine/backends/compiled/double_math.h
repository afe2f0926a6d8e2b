/* exp, expm1, log, tanh, erfc, sin and cos of doubles: the C library's, lane by lane. */
#define BY_LANE(name)                                             \
  INLINE vec v_##name(vec x) {                                    \
    vec y;                                                        \
    for (long i = 0; i < LANES; i++) y[i] = name(x[i]);           \
    return y;                                                     \
  }
BY_LANE(exp)
BY_LANE(expm1)
#define v_expm1_below_0 v_expm1
BY_LANE(log)
BY_LANE(tanh)
BY_LANE(erfc)
BY_LANE(sin)
BY_LANE(cos)
