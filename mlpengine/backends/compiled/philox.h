/* Random bytes of the counter-based generator Philox4x32-10, the same bytes as in ops/philox.py.  The
   lower half of each 64-bit lane holds a 32-bit word of a block. */

typedef uint64_t words __attribute__((vector_size(BYTES)));
typedef uint8_t byte_lanes __attribute__((vector_size(BYTES / sizeof(real)), aligned(1)));
#define WORDS (BYTES / 8)
#define GROUP_BYTES INT64_C(128) /* eight blocks: the first half of each, then the second halves */

/* Multiply the lower halves of 64-bit lanes. */
#if defined(__AVX512F__) && BYTES == 64 && !defined(__clang__)
INLINE words multiply_halves(words a, words b) {
  typedef int halves __attribute__((vector_size(64)));
  typedef long long longs __attribute__((vector_size(64)));
  return (words)__builtin_ia32_pmuludq512_mask((halves)a, (halves)b, (longs){0}, (uint8_t)-1);
}
#elif defined(__AVX2__) && BYTES == 32 && !defined(__clang__)
INLINE words multiply_halves(words a, words b) {
  typedef int halves __attribute__((vector_size(32)));
  return (words)__builtin_ia32_pmuludq256((halves)a, (halves)b);
}
#elif defined(__SSE2__) && BYTES == 16 && !defined(__clang__)
INLINE words multiply_halves(words a, words b) {
  typedef int halves __attribute__((vector_size(16)));
  return (words)__builtin_ia32_pmuludq128((halves)a, (halves)b);
}
#else
INLINE words multiply_halves(words a, words b) { return (a & 0xffffffff) * (b & 0xffffffff); }
#endif

/* Write the bytes first to last of a stream to `out`; `state` holds seed and step. */
SHARED void draw_bytes(uint8_t *restrict out, const int64_t *restrict state, const uint64_t stream,
                       const int64_t first, const int64_t last) {
  if (first >= last) return; /* a thread without rows, in a short batch */
  const uint64_t seed = (uint64_t)state[0], step = (uint64_t)state[1];
  const words none = {0}, factor_0 = none + 0xD2511F53, factor_2 = none + 0xCD9E8D57;
  words lane_number;
  UNROLL for (int64_t i = 0; i < WORDS; i++) lane_number[i] = (uint64_t)i;
  uint64_t keys[10][2]; /* of each round */
  for (uint32_t round = 0; round < 10; round++) {
    keys[round][0] = (uint32_t)seed + round * 0x9E3779B9u;
    keys[round][1] = (uint32_t)(seed >> 32) + round * 0xBB67AE85u;
  }
  for (int64_t group = first / GROUP_BYTES * GROUP_BYTES; group < last; group += GROUP_BYTES) {
    uint64_t drawn[GROUP_BYTES / 8] __attribute__((aligned(64)));
    UNROLL for (int64_t b = 0; b < 8; b += WORDS) {
      words word_0 = lane_number + (uint64_t)(group / 16 + b), word_1 = none + stream;
      words word_2 = none + step, word_3 = none + (step >> 32);
      UNROLL for (int round = 0; round < 10; round++) {
        const words low_0 = multiply_halves(word_0, factor_0);
        const words low_2 = multiply_halves(word_2, factor_2);
        word_0 = (low_2 >> 32) ^ word_1 ^ keys[round][0];
        word_2 = (low_0 >> 32) ^ word_3 ^ keys[round][1];
        word_1 = low_2;
        word_3 = low_0;
      }
      word_0 = (word_0 & 0xffffffff) | word_1 << 32;
      word_2 = (word_2 & 0xffffffff) | word_3 << 32;
      memcpy(drawn + b, &word_0, BYTES);
      memcpy(drawn + 8 + b, &word_2, BYTES);
    }
    const int64_t from = MAX(first, group), to = MIN(last, group + GROUP_BYTES);
    if (to - from == GROUP_BYTES) memcpy(out + group, drawn, GROUP_BYTES);
    else memcpy(out + from, (char *)drawn + (from - group), (size_t)(to - from));
  }
}

/* The mask for a vector of entries: `scale` if the entry's byte is at least `limit`, else 0. */
#if defined(WITH_MASKS) && defined(REAL_IS_FLOAT) && defined(__AVX512BW__) && \
    defined(__AVX512VL__) && !defined(__clang__)
INLINE vec load_mask(const uint8_t *p, const bits limit, const real scale) {
  typedef char bytes __attribute__((vector_size(16)));
  bytes draws, limits = (bytes){0} + (char)limit;
  memcpy(&draws, p, 16);
  const uint16_t kept = __builtin_ia32_ucmpb128_mask(draws, limits, 5, (uint16_t)-1);
  return __builtin_ia32_blendmps_512_mask((vec){0}, splat(scale), kept);
}
#else
/* The bytes for a vector of entries, as integers.  Only eight bytes are loaded: a load of bytes from
   several recent stores would wait for these stores. */
#if !defined(__clang__) && \
    (defined(REAL_IS_FLOAT) ? defined(__AVX2__) && BYTES == 32 : defined(WITH_MASKS))
INLINE ivec widen(const uint8_t *p) {
  typedef char bytes __attribute__((vector_size(16)));
  typedef long long pair __attribute__((vector_size(16)));
  long long eight;
  memcpy(&eight, p, 8);
  const bytes draws = (bytes)(pair){eight, 0};
#ifdef REAL_IS_FLOAT
  return (ivec)__builtin_ia32_pmovzxbd256(draws);
#else
  return (ivec)__builtin_ia32_pmovzxbq512_mask(draws, (mask_vec){0}, 255);
#endif
}
#else
INLINE ivec widen(const uint8_t *p) {
  return __builtin_convertvector(*(const byte_lanes *)p, ivec);
}
#endif
INLINE vec load_mask(const uint8_t *p, const bits limit, const real scale) {
  return vselect(widen(p) >= limit, splat(scale), splat(0));
}
#endif
