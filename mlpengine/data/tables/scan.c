/* The loops of `_scan.py` over the bytes of a block; NumPy's there define what they do.
 *
 * Arrays of cells are (columns, rows); offsets are those of bytes in the block, which has bytes to
 * spare before and after it.  Eight bytes are read as a word whose lowest byte is the first.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BYTES(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Bytes of a vector; compilers take longer ones apart, byte by byte. */
#if defined(__AVX512BW__)
#define VECTOR 64
#elif defined(__AVX2__)
#define VECTOR 32
#else
#define VECTOR 16
#endif

enum { STRIP = 256, LANES = VECTOR / 8, WORDS = 3, LARGEST_POWER = 22 };

static const int64_t EXACT = INT64_C(1) << 53; /* whole numbers below it are exact in float64 */

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static uint64_t word_at(const void *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* Return the first `count` bytes, at most eight, and zeros behind them. */
static uint64_t bytes_at(const uint8_t *at, int64_t count) {
    return count < 8 ? word_at(at) & ~(~UINT64_C(0) << (8 * count)) : word_at(at);
}

typedef uint8_t vector __attribute__((vector_size(VECTOR)));

/* Return a bit for each of 64 bytes: whether a cell may end there, or a quote stands there. */
static uint64_t marks_at(const uint8_t *at, uint8_t delimiter) {
    uint64_t marks = 0;
#pragma GCC unroll 4
    for (int from = 0; from < 64; from += VECTOR) {
        vector bytes;
        memcpy(&bytes, at + from, VECTOR);
        bytes = (vector)((bytes == delimiter) | (bytes == '\n') | (bytes == '"') | (bytes == '\r'));
        bytes &= 1;
#pragma GCC unroll 8
        for (int i = 0; i < VECTOR; i += 8) /* the product gathers eight bits in the highest byte */
            marks |= ((word_at((uint8_t *)&bytes + i) * UINT64_C(0x0102040810204080)) >> 56)
                     << (from + i);
    }
    return marks;
}

/* Cut the lines from `begin` to `end`, whose last byte is a newline, into at most `rows` rows of
 * `width` cells.  Return the number of rows, or -1 if the lines need a full parser. */
int64_t scan_cut(const uint8_t *text, int64_t begin, int64_t end, int delimiter, int64_t width,
                 int64_t rows, int64_t limit, int32_t *start, int32_t *stop) {
    const int64_t last_column = (width - 1) * rows;
    int64_t row = 0, cell = 0, first = begin; /* cell is column * rows + row */
    int is_quoted = 0;
    for (int64_t base = begin, next; base < end; base = next) {
        uint64_t marks = marks_at(text + base, (uint8_t)delimiter);
        next = base + 64;
        if (next > end)
            marks &= ~(~UINT64_C(0) << (end - base));
        for (; marks; marks &= marks - 1) {
            int64_t at = base + __builtin_ctzll(marks), last = at;
            const int is_end = text[at] == '\n';
            if (is_end) {
                last -= text[at - 1] == '\r';
                if (cell - row != last_column || row == rows || (width == 1 && last == first))
                    return -1;
            } else if (text[at] == delimiter) {
                if (cell - row == last_column)
                    return -1;
            } else if (text[at] == '"') {
                if (at != first)
                    return -1;
                for (at++; text[at] != '"' || text[at + 1] == '"'; at++) {
                    if (text[at] == '\r' || at >= end)
                        return -1;
                    at += text[at] == '"';
                }
                is_quoted = 1;
                next = at + 1;
                break;
            } else if (text[at + 1] == '\n') {
                continue;
            } else {
                return -1;
            }
            if (last - first > limit || (is_quoted && text[last - 1] != '"'))
                return -1;
            start[cell] = (int32_t)(first + is_quoted);
            stop[cell] = (int32_t)(last - is_quoted);
            first = at + 1;
            is_quoted = 0;
            cell = is_end ? ++row : cell + rows;
        }
    }
    return cell != row || first != end ? -1 : row;
}

/* What follows takes a word, or words of several cells side by side. */
typedef uint64_t lanes __attribute__((vector_size(VECTOR), aligned(8), may_alias));
typedef int64_t signed_lanes __attribute__((vector_size(VECTOR), aligned(8), may_alias));
typedef double doubles __attribute__((vector_size(VECTOR), aligned(8), may_alias));

/* Whether one of eight values is not a digit. */
#define OTHERS_IN(digits) ((((digits) + BYTES(0x76)) | (digits)) & BYTES(0x80))

/* In each byte the number that this digit and the next one write. */
#define PAIRS_OF(digits) ((digits) * 10 + ((digits) >> 8))

/* The number that four such pairs write.
 *
 * Source: Langdale and Lemire 2019, eight digits of a word in three products. */
#define NUMBER_OF(pairs) \
    ((((pairs) & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x000F424000000064) + \
      (((pairs) >> 16) & UINT64_C(0x000000FF000000FF)) * UINT64_C(0x0000271000000001)) >> 32)

/* Numbers of some cells, which are read side by side: the words of their ends, the last ones
 * first, and the length without a sign.
 *
 * The lowest bit of the byte of the point in its word is `point`, and `behind` the bytes of the
 * words from there on but one.  A number is digits * factor / divisor; the digits are exact, and
 * below 2**53 if multiplied. */
struct strip {
    uint64_t words[WORDS][STRIP], length[STRIP], is_padded[STRIP], is_other[STRIP];
    uint64_t point[STRIP], behind[STRIP];
    int64_t digits[STRIP];
    double factor[STRIP], divisor[STRIP];
};

#define LANES_OF(type, array) (*(type *)((array) + at))
#define LANES_AT(array) LANES_OF(lanes, array)

/* Read cells that are digits and at most one point, and shorter than `count` words; mark others.
 *
 * Masks stand for branches on the length and the place of the point, which vary between cells. */
static inline __attribute__((always_inline)) void read_short(struct strip *strip, int at,
                                                             const int count) {
    const lanes zero = {0}, length = LANES_AT(strip->length);
    lanes words[WORDS], point = zero, behind = zero, has_point = zero, digits = zero;
    lanes other = (lanes)(length >= zero + (uint64_t)(8 * count));
    for (int i = 0; i < count; i++) {
        const lanes start = zero + (uint64_t)(8 * i);
        const lanes left = (length - start) & (lanes)(length > start);
        const lanes shift = 4 * ((8 - left) & (lanes)(left < 8));
        words[i] = (LANES_AT(strip->words[i]) ^ BYTES('0')) & (~zero << shift << shift);
    }
    for (int i = 0; i < count; i++) { /* the bytes before the point move up by one */
        const lanes marks = words[i] ^ BYTES('.' ^ '0');
        const lanes zeros = (marks - BYTES(1)) & ~marks & BYTES(0x80) & ~has_point;
        const lanes bit = (zeros & -zeros) >> 7, is_here = (lanes)(bit != 0);
        lanes moved = (words[i] & -(bit << 8)) | (words[i] & (bit - 1)) << 8;
        if (i + 1 < count)
            moved |= words[i + 1] >> 56;
        has_point |= is_here;
        point |= bit;
        behind |= is_here & (uint64_t)(8 * i + 7);
        words[i] = (moved & has_point) | (words[i] & ~has_point);
    }
    for (int i = count - 1; i >= 0; i--) {
        other |= OTHERS_IN(words[i]);
        words[i] = PAIRS_OF(words[i]);
        words[i] = NUMBER_OF(words[i]);
        if (i == 2) /* digits may exceed int64 */
            other |= (lanes)(words[i] >= 400);
        digits = digits * 100000000 + words[i];
    }
    /* whole numbers that are codes, or not exact in float64 */
    other |= ~has_point & ((LANES_AT(strip->is_padded) & (lanes)(length > 1)) |
                           (lanes)(digits >= (uint64_t)EXACT));
    LANES_AT(strip->is_other) = other | (lanes)(length <= (has_point & 1));
    LANES_AT(strip->point) = point | (~has_point & 1);
    LANES_AT(strip->behind) = behind;
    LANES_AT(strip->digits) = digits;
}

static void put(struct strip *strip, int i, int64_t digits, double factor, double divisor) {
    strip->digits[i] = digits, strip->factor[i] = factor, strip->divisor[i] = divisor;
}

/* Append the digits from `at` on to a number; return the byte behind them. */
static const uint8_t *read_digits(const uint8_t *at, uint64_t *number, int *wrong) {
    static const uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    static const uint64_t limits[] = {
        UINT64_C(4000000000000000000), 400000000000000000, 40000000000000000, 4000000000000000,
        400000000000000, 40000000000000, 4000000000000, 400000000000, 40000000000};
    for (;;) {
        const uint64_t word = word_at(at) ^ BYTES('0'), others = OTHERS_IN(word);
        const int count = others ? __builtin_ctzll(others) >> 3 : 8;
        const uint64_t pairs = PAIRS_OF(others ? word << (56 - 8 * count) << 8 : word);
        *wrong |= *number >= limits[count];
        *number = *number * tens[count] + NUMBER_OF(pairs);
        at += count;
        if (others)
            return at;
    }
}

/* Read digits, a point and an exponent; return whether it is a number that is rounded here. */
static int read_long(const uint8_t *at, const uint8_t *end, struct strip *strip, int i) {
    uint64_t digits = 0;
    int wrong = 0;
    const uint8_t *behind = read_digits(at, &digits, &wrong);
    int64_t count = behind - at, exponent = 0;
    if (*behind == '.') {
        at = behind + 1;
        behind = read_digits(at, &digits, &wrong);
        count += behind - at;
        exponent -= behind - at;
    } else if (behind == end) { /* whole numbers that are codes, or not exact in float64 */
        wrong |= digits >= (uint64_t)EXACT || (strip->is_padded[i] && count > 1);
    }
    if (behind != end) {
        uint64_t size = 0;
        wrong |= (*behind | 0x20) != 'e';
        const int negative = behind[1] == '-';
        at = behind + (negative || behind[1] == '+' ? 2 : 1);
        behind = read_digits(at, &size, &wrong);
        wrong |= behind == at || size > 1000;
        exponent += negative ? -(int64_t)size : (int64_t)size;
    }
    wrong |= behind != end || count == 0 || exponent < -LARGEST_POWER || exponent > LARGEST_POWER;
    wrong |= exponent > 0 && digits >= (uint64_t)EXACT;
    if (wrong)
        return 0;
    put(strip, i, (int64_t)digits, strip->factor[i] * POWERS[exponent > 0 ? exponent : 0],
        POWERS[exponent < 0 ? -exponent : 0]);
    return 1;
}

/* Write the nearest float64 of each number; mark those that this arithmetic does not decide.
 *
 * Source: Dekker 1971, a quotient of doubled precision. */
static void round_long(const struct strip *strip, int count, double *values, uint8_t *odd) {
    for (int i = 0; i < count; i++) {
        const double factor = strip->factor[i], divisor = strip->divisor[i];
        const double digits = (double)strip->digits[i], upper = digits * factor;
        const double lower = (double)(strip->digits[i] - (int64_t)digits) * factor;
        const double value = upper / divisor;
        const double rest = (fma(-value, divisor, upper) + lower) / divisor;
        const double nearest = value + rest * (1 + 0x1p-48);
        values[i] = copysign(nearest, factor); /* of -0 plus 0 the sign is lost */
        odd[i] |= value == value && nearest != value + rest * (1 - 0x1p-48);
    }
}

static int is_among(const uint64_t *words, int64_t count, const uint8_t *at, const uint8_t *end) {
    if (end - at > 8)
        return 0;
    const uint64_t word = bytes_at(at, end - at);
    for (int64_t i = 0; i < count; i++)
        if (words[i] == word)
            return 1;
    return 0;
}

/* Write the values of numbers, NaN for empty cells and those that hold one of the words (up to
 * eight bytes, zeros behind them), and which cells are others; return how many those are.  The
 * words may be numbers if `is_word_first`. */
int64_t scan_numbers(const uint8_t *text, int64_t rows, const int32_t *start, const int32_t *stop,
                     const uint64_t *words, int64_t word_count, int is_word_first, double *values,
                     uint8_t *odd) {
    static const double signs[] = {1, -1};
    struct strip strip = {0};
    int64_t odd_count = 0;
    for (int64_t row = 0; row < rows; row += STRIP) {
        const int count = rows - row < STRIP ? (int)(rows - row) : STRIP;
        uint64_t longest = 0;
        int64_t all_digits = 0;
        for (int i = 0; i < count; i++) {
            const uint8_t first = text[start[row + i]];
            const int is_signed = (first == '-') | (first == '+');
            strip.length[i] = (uint64_t)(stop[row + i] - start[row + i] - is_signed);
            strip.is_padded[i] = -(uint64_t)(first == '0');
            strip.factor[i] = signs[first == '-'];
            longest |= strip.length[i];
        }
        const int width = longest < 8 ? 1 : longest < 16 ? 2 : WORDS;
        for (int word = 0; word < width; word++)
            for (int i = 0; i < count; i++)
                strip.words[word][i] = word_at(text + stop[row + i] - 8 * (word + 1));
        for (int at = 0; at < count; at += LANES)
            if (width == 1)
                read_short(&strip, at, 1);
            else if (width == 2)
                read_short(&strip, at, 2);
            else
                read_short(&strip, at, WORDS);
        for (int i = 0; i < count; i++) {
            const uint8_t *const begin = text + start[row + i], *const end = text + stop[row + i];
            odd[row + i] = 0;
            if (!strip.is_other[i] && !is_word_first) {
                const int place = __builtin_ctzll(strip.point[i]) / 8;
                strip.divisor[i] = POWERS[(int)strip.behind[i] - place];
            } else if (begin == end ||
                       (is_word_first && is_among(words, word_count, begin, end))) {
                put(&strip, i, 0, NAN, 1);
            } else if (!read_long(end - strip.length[i], end, &strip, i)) {
                put(&strip, i, 0, NAN, 1);
                odd[row + i] = (uint8_t)!is_among(words, word_count, begin, end);
            }
            all_digits |= strip.digits[i];
        }
        if (all_digits < EXACT) {
            for (int at = 0; at < count; at += LANES)
                LANES_OF(doubles, strip.factor) *=
                    __builtin_convertvector(LANES_OF(signed_lanes, strip.digits), doubles) /
                    LANES_OF(doubles, strip.divisor);
            memcpy(values + row, strip.factor, (size_t)count * sizeof *values);
        } else {
            round_long(&strip, count, values + row, odd + row);
        }
        for (int i = 0; i < count; i++)
            odd_count += odd[row + i];
    }
    return odd_count;
}

static int64_t byte_of(uint64_t word, int place) { return word >> (8 * place) & 0xFF; }

/* Write dates as seconds since 1970, NaN for empty cells; return whether all cells are such. */
int scan_moments(const uint8_t *text, int64_t rows, const int32_t *start, const int32_t *stop,
                 double *values) {
    static const short before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *const at = text + start[row];
        const int64_t length = stop[row] - start[row];
        if (length == 0) {
            values[row] = NAN;
            continue;
        }
        if (length != 10 && length != 19)
            return 0;
        /* digits, and zeros where the marks are those of 0000-00-00T00:00:00 */
        uint64_t months = word_at(at) ^ word_at("0000-00-");
        uint64_t minutes = word_at(at + 8) ^ word_at("00T00:00");
        uint64_t seconds = bytes_at(at + 16, 3) ^ word_at(":00\0\0\0\0");
        if (at[10] == ' ')
            minutes ^= (uint64_t)(' ' ^ 'T') << 16;
        if (length == 10)
            minutes &= 0xFFFF, seconds = 0;
        uint64_t wrong = OTHERS_IN(months) | OTHERS_IN(minutes) | OTHERS_IN(seconds);
        wrong |= months & UINT64_C(0xFF0000FF00000000);
        wrong |= (minutes & UINT64_C(0x0000FF0000FF0000)) | (seconds & 0xFF);
        months = PAIRS_OF(months), minutes = PAIRS_OF(minutes), seconds = PAIRS_OF(seconds);
        const int64_t year = byte_of(months, 0) * 100 + byte_of(months, 2);
        const int64_t month = byte_of(months, 5), day = byte_of(minutes, 0);
        const int64_t hour = byte_of(minutes, 3), minute = byte_of(minutes, 6);
        const int64_t second = byte_of(seconds, 1);
        if (wrong || year < 1 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 ||
            second > 59)
            return 0;
        const int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        if (day > before[month] - before[month - 1] + (leap && month == 2))
            return 0;
        const int64_t past = year - 1;
        const int64_t days = past * 365 + past / 4 - past / 100 + past / 400 + before[month - 1] +
                          (leap && month > 2) + day - 1 - 719162;
        values[row] = days * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
    }
    return 1;
}

/* The lowest bits, which choose a place in a table, depend on all bytes. */
static uint64_t hash_of(const uint8_t *at, int64_t length) {
    uint64_t hash = (uint64_t)length * 0x9E3779B97F4A7C15u;
    for (; length > 8; at += 8, length -= 8)
        hash = __builtin_bswap64((hash ^ word_at(at)) * 0xFF51AFD7ED558CCDu);
    hash = __builtin_bswap64((hash ^ bytes_at(at, length)) * 0xFF51AFD7ED558CCDu) * 0xC4CEB9FE1A85EC53u;
    return hash ^ hash >> 32;
}

static int are_equal(const uint8_t *a, const uint8_t *b, int64_t length) {
    for (; length > 8; a += 8, b += 8, length -= 8)
        if (word_at(a) != word_at(b))
            return 0;
    return bytes_at(a, length) == bytes_at(b, length);
}

/* Put the entries into an empty table of `mask + 1` places; 0 is free, else a number from 1. */
void scan_rehash(int32_t *table, uint64_t mask, const uint64_t *hashes, int64_t count) {
    for (int64_t entry = 0; entry < count; entry++) {
        uint64_t place = hashes[entry] & mask;
        while (table[place])
            place = (place + 1) & mask;
        table[place] = (int32_t)(entry + 1);
    }
}

/* Write the number of each cell's text; texts that are new get the next numbers.  There must be
 * room for all cells to be new, and for eight bytes more.  Return the number of texts. */
int64_t scan_texts(const uint8_t *text, int64_t rows, const int32_t *start, const int32_t *stop,
                   int32_t *table, uint64_t mask, uint64_t *hashes, int64_t *ends, uint8_t *arena,
                   int64_t count, int32_t *numbers) {
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *const at = text + start[row];
        const int64_t length = stop[row] - start[row];
        const uint64_t hash = hash_of(at, length);
        uint64_t place = hash & mask;
        int32_t entry;
        while ((entry = table[place])) {
            const int64_t from = ends[entry - 1];
            if (hashes[entry - 1] == hash && ends[entry] - from == length &&
                are_equal(arena + from, at, length))
                break;
            place = (place + 1) & mask;
        }
        if (!entry) {
            memcpy(arena + ends[count], at, (size_t)length);
            ends[count + 1] = ends[count] + length;
            hashes[count] = hash;
            table[place] = entry = (int32_t)++count;
        }
        numbers[row] = entry - 1;
    }
    return count;
}
