/* Types and basic operations of vectors.  The generated code before this file defines:
     real    float or double
     BYTES   bytes of a vector register of the target: 16, 32 or 64  */
#include <stdint.h>
#include <string.h>

/* The functions of <math.h> that programs call.  <math.h> is not included, because the compiler would
   take 14 ms to read it; a whole program takes about 250 ms. */
double cos(double), exp(double), expm1(double), fabs(double), log(double), log1p(double);
double log2(double), pow(double, double), sin(double), sqrt(double), tanh(double);
float cosf(float), log1pf(float), log2f(float), powf(float, float), sinf(float), sqrtf(float);
#define isfinite(x) __builtin_isfinite(x)
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define LANES ((int64_t)(BYTES / sizeof(real)))
#define INLINE static inline __attribute__((always_inline, unused))

/* A program may be compiled in parallel as two translation units, with UNIT 0 and UNIT 1.  ACROSS marks
   functions that the other unit calls.  If UNIT is not defined, one unit has all functions. */
#ifdef UNIT
#define IN_UNIT(number) (UNIT == (number))
#define ACROSS __attribute__((visibility("hidden")))
#else
#define IN_UNIT(number) 1
#define ACROSS static
#endif

#define SHARED __attribute__((noinline, unused)) static /* compiles faster than inlining */
/* A statement in every function: GCC 12 would drop calls of a function that writes only through its
   own restrict pointers, as if the function had no effects. */
#define HAS_EFFECTS __asm__ volatile("" ::: "memory")
#define UNROLL _Pragma("GCC unroll 16")
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef real vec __attribute__((vector_size(BYTES)));
typedef real loose __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
typedef bits ivec __attribute__((vector_size(BYTES))); /* integers of the width of real */

INLINE vec load(const real *p) { return *(const loose *)p; }
INLINE void store(real *p, vec v) { *(loose *)p = v; }

INLINE ivec load_bits(const bits *p) {
  ivec v;
  memcpy(&v, p, BYTES);
  return v;
}
INLINE ivec lane_numbers(void) {
  static const bits numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load_bits(numbers);
}
INLINE ivec first_lanes(const int64_t n) { return lane_numbers() < (bits)n; }

#if defined(__AVX512DQ__) && BYTES == 64
#define WITH_MASKS /* mask registers with one bit for each lane */
#elif defined(__AVX2__) && defined(__FMA__) && BYTES == 32
#define WITH_BLENDS /* masks are vectors */
#endif
#ifdef REAL_IS_FLOAT
#define PACKED(name, more) __builtin_ia32_##name##ps##more /* an instruction on a vector */
typedef uint16_t lane_bits;
typedef ivec mask_vec;
#define LANE_BITS(mask) __builtin_ia32_cvtd2mask512(mask)
#else
#define PACKED(name, more) __builtin_ia32_##name##pd##more
typedef uint8_t lane_bits;
typedef long long mask_vec __attribute__((vector_size(BYTES)));
#define LANE_BITS(mask) __builtin_ia32_cvtq2mask512((mask_vec)(mask))
#endif

/* Load or store the first n lanes.  Other lanes are loaded as zero, and not stored. */
#if defined(WITH_MASKS)
INLINE vec load_some(const real *p, const int64_t n) {
  return PACKED(loadu, 512_mask)(p, (vec){0}, (lane_bits)((1u << n) - 1));
}
INLINE void store_some(real *p, vec v, const int64_t n) {
  PACKED(storeu, 512_mask)(p, v, (lane_bits)((1u << n) - 1));
}
#elif defined(WITH_BLENDS)
INLINE vec load_some(const real *p, const int64_t n) {
  return PACKED(maskload, 256)((const vec *)p, (mask_vec)first_lanes(n));
}
INLINE void store_some(real *p, vec v, const int64_t n) {
  PACKED(maskstore, 256)((vec *)p, (mask_vec)first_lanes(n), v);
}
#else
INLINE vec load_some(const real *p, const int64_t n) {
  vec v = {0};
  memcpy(&v, p, (size_t)n * sizeof(real));
  return v;
}
INLINE void store_some(real *p, vec v, const int64_t n) { memcpy(p, &v, (size_t)n * sizeof(real)); }
#endif

/* Load or store the first n lanes, for a compile-time constant n up to LANES. */
INLINE vec load_first(const real *p, const int64_t n) {
  return n == LANES ? load(p) : load_some(p, n);
}
INLINE void store_first(real *p, vec v, const int64_t n) {
  if (n == LANES) store(p, v);
  else store_some(p, v, n);
}

/* Load or store the first n lanes, from or to numbers that are `stride` apart. */
INLINE vec load_every(const real *p, const int64_t n, const int64_t stride) {
  vec v = {0};
  UNROLL for (int64_t i = 0; i < n; i++) v[i] = p[i * stride];
  return v;
}
INLINE void store_every(real *p, vec v, const int64_t n, const int64_t stride) {
  UNROLL for (int64_t i = 0; i < n; i++) p[i * stride] = v[i];
}

/* A vector with x in all lanes.  x - 0 costs no instruction.  x + 0 costs one, to turn -0 into 0. */
INLINE vec splat(real x) { return x - (vec){0}; }

/* vselect: a where `mask` is set, else b.  vmax and vmin: maximum and minimum; a NaN in `a` stays NaN.
   Builtins are used, because compilers do not choose the instructions for these by themselves. */
#if defined(WITH_MASKS) && !defined(__clang__)
INLINE vec vselect(ivec mask, vec a, vec b) {
  return PACKED(blendm, _512_mask)(b, a, LANE_BITS(mask));
}
INLINE vec vmax(vec a, vec b) { return PACKED(max, 512_mask)(b, a, (vec){0}, (lane_bits)-1, 4); }
INLINE vec vmin(vec a, vec b) { return PACKED(min, 512_mask)(b, a, (vec){0}, (lane_bits)-1, 4); }
#elif defined(WITH_BLENDS)
INLINE vec vselect(ivec mask, vec a, vec b) { return PACKED(blendv, 256)(b, a, (vec)mask); }
INLINE vec vmax(vec a, vec b) { return PACKED(max, 256)(b, a); }
INLINE vec vmin(vec a, vec b) { return PACKED(min, 256)(b, a); }
#else
INLINE vec vselect(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }
INLINE vec vmax(vec a, vec b) { return vselect(a < b, b, a); }
INLINE vec vmin(vec a, vec b) { return vselect(a > b, b, a); }
#endif

/* Whether the mask is set in any lane. */
INLINE int64_t any_lane(ivec mask) {
#if defined(WITH_MASKS)
  return LANE_BITS(mask);
#elif defined(WITH_BLENDS)
  return PACKED(movmsk, 256)((vec)mask);
#else
  bits any = 0;
  UNROLL for (int64_t i = 0; i < LANES; i++) any |= mask[i];
  return any != 0;
#endif
}

/* a b + c, rounded once if the target has an instruction for it, otherwise twice.  All sums of products
   and all polynomials use this function, because the compiler must not fuse operations by itself. */
INLINE vec multiply_add(vec a, vec b, vec c) {
#if defined(__clang__)
#pragma clang fp contract(on)
  return a * b + c;
#elif defined(WITH_MASKS)
  return PACKED(vfmadd, 512_mask)(a, b, c, (lane_bits)-1, 4);
#elif defined(WITH_BLENDS)
  return PACKED(vfmadd, 256)(a, b, c);
#elif defined(__aarch64__) && defined(REAL_IS_FLOAT)
  return __builtin_aarch64_fmav4sf(a, b, c);
#elif defined(__aarch64__)
  return __builtin_aarch64_fmav2df(a, b, c);
#else
  return a * b + c;
#endif
}

/* The polynomial of x with these coefficients, from the highest power to the lowest. */
#define POLYNOMIAL(x, ...) \
  ({ static const real of_powers[] = {__VA_ARGS__}; \
     horner(x, of_powers, (int64_t)(sizeof of_powers / sizeof *of_powers)); })
INLINE vec horner(const vec x, const real *of_powers, const int64_t n) {
  vec p = splat(of_powers[0]);
  UNROLL for (int64_t i = 1; i < n; i++) p = multiply_add(p, x, splat(of_powers[i]));
  return p;
}

/* 1 / x for normal x, correct to at least 11 bits: the start value of a Newton iteration. */
#if defined(WITH_MASKS) && defined(REAL_IS_FLOAT)
INLINE vec inverse_roughly(vec x) {
  return __builtin_ia32_rcp14ps512_mask(x, (vec){0}, (uint16_t)-1);
}
#else
INLINE vec inverse_roughly(vec x) { return splat(1) / x; }
#endif

/* a / b for b from 1 to 1e30; the error is at most one unit in the last place. */
INLINE vec quotient(vec a, vec b) {
#if defined(WITH_MASKS) && defined(REAL_IS_FLOAT)
  vec inverse = inverse_roughly(b), y = a * inverse;
  return multiply_add(multiply_add(-y, b, a), inverse, y);
#else
  return a / b;
#endif
}

/* Sum and maximum over the lanes: the halves of the vector are combined until one lane is left. */
typedef real quad __attribute__((vector_size(16)));
typedef bits iquad __attribute__((vector_size(16)));
#define QUADS (BYTES / 16)
INLINE real sum_lanes(vec v) {
  quad part[QUADS];
  memcpy(part, &v, BYTES);
  UNROLL for (int64_t n = QUADS / 2; n; n /= 2) UNROLL for (int64_t i = 0; i < n; i++)
    part[i] += part[i + n];
  UNROLL for (int64_t n = LANES / QUADS / 2; n; n /= 2) UNROLL for (int64_t i = 0; i < n; i++)
    part[0][i] += part[0][i + n];
  return part[0][0];
}
INLINE real max_lanes(vec v) {
  quad part[QUADS];
  memcpy(part, &v, BYTES);
  UNROLL for (int64_t n = QUADS / 2; n; n /= 2) UNROLL for (int64_t i = 0; i < n; i++) {
    const iquad larger = part[i] > part[i + n];
    part[i] = (quad)(((iquad)part[i] & larger) | ((iquad)part[i + n] & ~larger));
  }
  UNROLL for (int64_t n = LANES / QUADS / 2; n; n /= 2) UNROLL for (int64_t i = 0; i < n; i++)
    part[0][i] = MAX(part[0][i], part[0][i + n]);
  return part[0][0];
}

/* Treat denormal numbers as zero in this thread, until restore_denormals. */
INLINE uint64_t flush_denormals(void) {
#if defined(__SSE2__)
  unsigned int old = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(old | 0x8040);
  return old;
#elif defined(__aarch64__)
  uint64_t old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" : : "r"(old | (UINT64_C(1) << 24)));
  return old;
#else
  return 0;
#endif
}

INLINE void restore_denormals(uint64_t old) {
#if defined(__SSE2__)
  __builtin_ia32_ldmxcsr((unsigned int)old);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(old));
#else
  (void)old;
#endif
}
