/* Types and moves of one vector.  The generated code defines, before this:
     real    float or double
     BYTES   bytes of a vector register of the target: 16, 32 or 64  */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES ((long)(BYTES / sizeof(real)))
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef real vec __attribute__((vector_size(BYTES)));
typedef real loose __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias));
typedef bits ivec __attribute__((vector_size(BYTES))); /* integers of the width of real */

INLINE vec load(const real *p) { return *(const loose *)p; }
INLINE void store(real *p, vec v) { *(loose *)p = v; }

/* The first n lanes; the others read as zero and are not written. */
INLINE vec load_some(const real *p, const long n) {
  vec v = {0};
  memcpy(&v, p, (size_t)n * sizeof(real));
  return v;
}
INLINE void store_some(real *p, vec v, const long n) { memcpy(p, &v, (size_t)n * sizeof(real)); }

/* All lanes x.  Not x + 0, which would cost an addition to keep the sign of a zero. */
INLINE vec splat(real x) { return x - (vec){0}; }

/* Where `mask` is set a, else b, lane by lane; the larger and the smaller one, where a NaN in `a`
   stays.  Compilers do not find the single instructions by themselves. */
#if defined(__AVX2__) && BYTES == 32 && defined(REAL_IS_FLOAT)
INLINE vec choose(ivec mask, vec a, vec b) { return __builtin_ia32_blendvps256(b, a, (vec)mask); }
INLINE vec larger(vec a, vec b) { return __builtin_ia32_maxps256(b, a); }
INLINE vec smaller(vec a, vec b) { return __builtin_ia32_minps256(b, a); }
#else
INLINE vec choose(ivec mask, vec a, vec b) { return (vec)(((ivec)a & mask) | ((ivec)b & ~mask)); }
INLINE vec larger(vec a, vec b) { return choose(a < b, b, a); }
INLINE vec smaller(vec a, vec b) { return choose(a > b, b, a); }
#endif

INLINE ivec first_lanes(const long n) {
  ivec mask;
  UNROLL for (long i = 0; i < LANES; i++) mask[i] = i < n ? -1 : 0;
  return mask;
}

INLINE ivec lane_numbers(void) {
  ivec numbers;
  UNROLL for (long i = 0; i < LANES; i++) numbers[i] = (bits)i;
  return numbers;
}

INLINE real sum_lanes(vec v) {
  real total = 0;
  UNROLL for (long i = 0; i < LANES; i++) total += v[i];
  return total;
}
INLINE real max_lanes(vec v) {
  real most = v[0];
  UNROLL for (long i = 1; i < LANES; i++) most = v[i] > most || v[i] != v[i] ? v[i] : most;
  return most;
}

/* Denormal numbers count as zero between the two calls, in this thread only. */
INLINE unsigned long flush_denormals(void) {
#if defined(__SSE2__)
  unsigned int old = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(old | 0x8040);
  return old;
#elif defined(__aarch64__)
  unsigned long old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  __asm__ volatile("msr fpcr, %0" : : "r"(old | (1ul << 24)));
  return old;
#else
  return 0;
#endif
}
INLINE void restore_denormals(unsigned long old) {
#if defined(__SSE2__)
  __builtin_ia32_ldmxcsr((unsigned int)old);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(old));
#else
  (void)old;
#endif
}
