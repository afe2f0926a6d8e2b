/* The loops of `_scan.py` over the bytes of a block; NumPy's there define what they do.
 *
 * Arrays of cells are (columns, rows); offsets are those of bytes in the block, which has bytes to
 * spare before and after it.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

enum { PLAIN = 0, ENDS = 1, POINT = 2, QUOTE = 4, RETURN = 8 };

/* Cut the lines from `begin` to `end`, whose last byte is a newline, into at most `rows` rows of
 * `width` cells.  Return the number of rows, or -1 if the lines need a full parser. */
long scan_cut(const uint8_t *text, long begin, long end, int delimiter, long width, long rows,
              long limit, int32_t *start, int32_t *stop, int32_t *points, int32_t *point) {
    uint8_t kind[256] = {PLAIN};
    kind['\n'] = kind[delimiter] = ENDS;
    kind['.'] = POINT;
    kind['"'] = QUOTE;
    kind['\r'] = RETURN;
    long row = 0, column = 0, at = begin;
    while (at < end) {
        if (row == rows)
            return -1;
        long first = at, last, count = 0, place = 0;
        const int quoted = text[at] == '"';
        if (quoted) {
            for (at++;; at++) {
                if (text[at] == '.') {
                    count++;
                    place = at;
                } else if (text[at] == '\r' || at >= end) {
                    return -1;
                } else if (text[at] == '"') {
                    if (text[at + 1] != '"')
                        break;
                    at++;
                }
            }
            at++; /* behind the closing quote */
            if (text[at] != delimiter && text[at] != '\n' && text[at] != '\r')
                return -1;
        }
        for (;; at++) {
            const uint8_t k = kind[text[at]];
            if (k == PLAIN)
                continue;
            if (k == POINT) {
                count++;
                place = at;
            } else {
                break;
            }
        }
        last = at;
        if (text[at] == '\r')
            at++;
        const int is_end = text[at] == '\n';
        if (kind[text[at]] != ENDS || (last < at && !is_end) || is_end != (column == width - 1))
            return -1;
        if (last - first > limit || (width == 1 && last == first))
            return -1;
        const long cell = column * rows + row;
        start[cell] = (int32_t)(first + quoted);
        stop[cell] = (int32_t)(last - quoted);
        points[cell] = (int32_t)count;
        point[cell] = (int32_t)place;
        at++;
        column++;
        if (is_end) {
            column = 0;
            row++;
        }
    }
    return column ? -1 : row;
}

/* Write the values of plain decimal numbers, NaN for empty cells, and which cells are others. */
void scan_numbers(const uint8_t *text, long rows, const int32_t *start, const int32_t *stop,
                  double *values, uint8_t *odd) {
    for (long row = 0; row < rows; row++) {
        const uint8_t *at = text + start[row], *const end = text + stop[row];
        values[row] = NAN;
        odd[row] = 0;
        if (at == end)
            continue;
        const int padded = *at == '0', negative = *at == '-';
        at += negative || *at == '+';
        uint64_t digits = 0;
        long whole = 0, part = 0;
        int wrong = 0;
        for (; at < end && (uint8_t)(*at - '0') < 10; at++, whole++) {
            wrong |= digits > 400000000000000000u;
            digits = digits * 10 + (*at - '0');
        }
        const int has_point = at < end && *at == '.';
        if (has_point)
            for (at++; at < end && (uint8_t)(*at - '0') < 10; at++, part++) {
                wrong |= digits > 400000000000000000u;
                digits = digits * 10 + (*at - '0');
            }
        wrong |= at < end || whole + part == 0 || part > 22;
        if (!has_point)
            wrong |= digits >= 1ull << 53 || (padded && whole > 1);
        double value = 0;
        if (!wrong) {
            const double power = POWERS[part], upper = (double)digits;
            value = upper / power;
            if (digits >= 1ull << 53) { /* Dekker: a quotient of doubled precision, if it decides */
                const double lower = (double)((int64_t)digits - (int64_t)upper);
                const double rest = (fma(-value, power, upper) + lower) / power;
                const double high = value + rest * (1 + 0x1p-48);
                wrong = high != value + rest * (1 - 0x1p-48);
                value = high;
            }
        }
        odd[row] = (uint8_t)wrong;
        values[row] = negative ? -value : value;
    }
}

static int number(const uint8_t *at, int count, long *value) {
    *value = 0;
    for (int i = 0; i < count; i++) {
        const uint8_t digit = (uint8_t)(at[i] - '0');
        if (digit > 9)
            return 0;
        *value = *value * 10 + digit;
    }
    return 1;
}

/* Write dates as seconds since 1970, NaN for empty cells; return whether all cells are such. */
int scan_moments(const uint8_t *text, long rows, const int32_t *start, const int32_t *stop,
                 double *values) {
    static const long before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    for (long row = 0; row < rows; row++) {
        const uint8_t *at = text + start[row];
        const long length = stop[row] - start[row];
        if (length == 0) {
            values[row] = NAN;
            continue;
        }
        long year, month, day, hour = 0, minute = 0, second = 0;
        if ((length != 10 && length != 19) || at[4] != '-' || at[7] != '-' ||
            !number(at, 4, &year) || !number(at + 5, 2, &month) || !number(at + 8, 2, &day))
            return 0;
        if (length == 19 &&
            ((at[10] != 'T' && at[10] != ' ') || at[13] != ':' || at[16] != ':' ||
             !number(at + 11, 2, &hour) || !number(at + 14, 2, &minute) ||
             !number(at + 17, 2, &second)))
            return 0;
        if (year < 1 || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 ||
            second > 59)
            return 0;
        const int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        if (day > before[month] - before[month - 1] + (leap && month == 2))
            return 0;
        const long past = year - 1;
        const long days = past * 365 + past / 4 - past / 100 + past / 400 + before[month - 1] +
                          (leap && month > 2) + day - 1 - 719162;
        values[row] = days * 86400.0 + hour * 3600.0 + minute * 60.0 + second;
    }
    return 1;
}

static uint64_t hash_of(const uint8_t *at, long length) {
    uint64_t hash = (uint64_t)length * 0x9E3779B97F4A7C15u, word;
    for (; length > 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, at, (size_t)length);
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
    return hash ^ (hash >> 29);
}

/* Put the entries into an empty table of `mask + 1` places; 0 is free, else a number from 1. */
void scan_rehash(int32_t *table, uint64_t mask, const uint64_t *hashes, long count) {
    for (long entry = 0; entry < count; entry++) {
        uint64_t place = hashes[entry] & mask;
        while (table[place])
            place = (place + 1) & mask;
        table[place] = (int32_t)(entry + 1);
    }
}

/* Write the number of each cell's text; texts that are new get the next numbers, and `fresh` has
 * the row of each.  There must be room for all cells to be new.  Return the number of texts. */
long scan_texts(const uint8_t *text, long rows, const int32_t *start, const int32_t *stop,
                int32_t *table, uint64_t mask, uint64_t *hashes, int64_t *ends, uint8_t *arena,
                long count, int32_t *numbers, int64_t *fresh) {
    const long known = count;
    for (long row = 0; row < rows; row++) {
        const uint8_t *at = text + start[row];
        const long length = stop[row] - start[row];
        const uint64_t hash = hash_of(at, length);
        uint64_t place = hash & mask;
        int32_t entry;
        while ((entry = table[place])) {
            const int64_t from = ends[entry - 1];
            if (hashes[entry - 1] == hash && ends[entry] - from == length &&
                memcmp(arena + from, at, (size_t)length) == 0)
                break;
            place = (place + 1) & mask;
        }
        if (!entry) {
            memcpy(arena + ends[count], at, (size_t)length);
            ends[count + 1] = ends[count] + length;
            hashes[count] = hash;
            fresh[count - known] = row;
            table[place] = entry = (int32_t)++count;
        }
        numbers[row] = entry - 1;
    }
    return count;
}
