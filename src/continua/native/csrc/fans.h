// Filters whose taps are even and odd in turn, as the derivatives of a Gaussian are: neighbours at the same distance share a product,
//
//     sum_k t[k] x[k] = t[0] x[0] + sum_{k>0} t[k] (x[k] + x[-k])   (even),     sum_{k>0} t[k] (x[k] - x[-k])   (odd),
//
// and the additions run beside the products. One map fans out into all its derivatives, or they fan in to one; along rows or columns alike: `step` lies
// between neighbours, of which there are `below` and `above`; the taps are given at their centres, `size` apart.
#pragma once
#include "jet.h"

namespace CONTINUA_ISA {

// Whether taps (derivatives, 2 reach + 1) are even and odd in turn. What is no number counts as both.
template <class T> static bool alternate(const T *taps, int derivatives, int reach) {
  for (int i = 0; i < derivatives; i++)
    for (int k = 0; k <= reach; k++) {
      const T up = taps[i * (2 * reach + 1) + reach + k], down = taps[i * (2 * reach + 1) + reach - k];
      if (std::fabs(i % 2 ? up + down : up - down) > 0) return false;
    }
  return true;
}

#define CONTINUA_INLINE inline __attribute__((always_inline))

// out_i = sum_k taps_i[k] x[k].
template <class T, int D, int B>
static CONTINUA_INLINE void fan_out(const T *x, ptrdiff_t step, int below, int above, const T *taps, int size, T *out, size_t between) {
  const int W = Simd<T>::width;
  Vec<T> a[D][B], even[B], odd[B];
  for (int b = 0; b < B; b++)
    for (int i = 0; i < D; i++) a[i][b] = i % 2 ? Vec<T>{} : taps[i * size] * load(x + W * b);
  auto add = [&](int k) {
    for (int i = 0; i < D; i++)
      for (int b = 0; b < B; b++) a[i][b] += taps[i * size + k] * (i % 2 ? odd[b] : even[b]);
  };
  int k = 1;
  for (const int both = std::min(below, above); k <= both; k++) {
    for (int b = 0; b < B; b++) {
      const Vec<T> up = load(x + k * step + W * b), down = load(x - k * step + W * b);
      even[b] = up + down, odd[b] = up - down;
    }
    add(k);
  }
  for (; k <= above; k++) { // beyond an edge there are zeros
    for (int b = 0; b < B; b++) even[b] = odd[b] = load(x + k * step + W * b);
    add(k);
  }
  for (; k <= below; k++) {
    for (int b = 0; b < B; b++) even[b] = load(x - k * step + W * b), odd[b] = -even[b];
    add(k);
  }
  for (int i = 0; i < D; i++)
    for (int b = 0; b < B; b++) store(out + i * between + W * b, a[i][b]);
}

// out_s = sum_i sum_k taps_s,i[k] x_i[k], for one or two sets of taps.
template <class T, int D, int B, int SETS>
static CONTINUA_INLINE void fan_in(const T *x, size_t between, ptrdiff_t step, int below, int above, const T *const *taps, int size, T *const *out) {
  const int W = Simd<T>::width;
  Vec<T> a[SETS][D][B];
  for (int s = 0; s < SETS; s++)
    for (int i = 0; i < D; i++)
      for (int b = 0; b < B; b++) a[s][i][b] = i % 2 ? Vec<T>{} : taps[s][i * size] * load(x + i * between + W * b);
  auto add = [&](int k, auto value) {
    for (int i = 0; i < D; i++)
      for (int b = 0; b < B; b++) {
        const Vec<T> z = value(x + i * between + W * b, i % 2);
        for (int s = 0; s < SETS; s++) a[s][i][b] += taps[s][i * size + k] * z;
      }
  };
  int k = 1;
  for (const int both = std::min(below, above); k <= both; k++)
    add(k, [&](const T *at, bool odd) { return odd ? load(at + k * step) - load(at - k * step) : load(at + k * step) + load(at - k * step); });
  for (; k <= above; k++) add(k, [&](const T *at, bool) { return load(at + k * step); });
  for (; k <= below; k++) add(k, [&](const T *at, bool odd) { return odd ? -load(at - k * step) : load(at - k * step); });
  for (int s = 0; s < SETS; s++)
    for (int b = 0; b < B; b++) {
      for (int i = 1; i < D; i++) a[s][0][b] += a[s][i][b];
      store(out[s] + W * b, a[s][0][b]);
    }
}

// A call of `block` with two vectors of channels at a time, then one.
template <class T, class Block> static inline void each_vector(int channels, const Block &block) {
  const int W = Simd<T>::width;
  int v = 0;
  for (; v + 2 * W <= channels; v += 2 * W) block(std::integral_constant<int, 2>{}, v);
  if (v < channels) block(std::integral_constant<int, 1>{}, v);
}

// A few columns at a time down all rows: the lines of their neighbours stay in the first cache.
static inline int few_columns(int channels) { return std::max(1, 128 / channels); }

// F[q][x][i] = sum_k rows_i[k] S[y(q) + k][x], for the output rows from `first` on.
template <class T, int D> static void fan_rows(const Jet &jet, const T *S, const T *taps, int first, int rows, T *F) {
  const int cp = jet.in, reach = jet.reach_y, size = 2 * reach + 1, few = few_columns(cp);
  const ptrdiff_t line = (ptrdiff_t)jet.width * cp;
  for (int from = 0; from < jet.width; from += few)
    for (int q = 0; q < rows; q++) {
      const int y = (first + q) * jet.stride, below = std::min(reach, y), above = std::min(reach, jet.height - 1 - y);
      for (int x = from; x < std::min(jet.width, from + few); x++)
        each_vector<T>(cp, [&](auto wide, int v) {
          T *to = F + ((size_t)q * jet.width + x) * D * cp + v;
          fan_out<T, D, decltype(wide)::value>(S + y * line + (size_t)x * cp + v, line, below, above, taps + reach, size, to, cp);
        });
    }
}

// gS[y][x] = sum_i sum_k rows_i[k] Q[y - k][x][i]: its transpose, for stride 1.
template <class T, int D> static void gather_rows(const Jet &jet, const T *Q, const T *taps, T *gS) {
  const int cp = jet.in, reach = jet.reach_y, size = 2 * reach + 1, few = few_columns(cp);
  const ptrdiff_t line = (ptrdiff_t)jet.width * D * cp;
  const T *centre[1] = {taps + reach};
  for (int from = 0; from < jet.width; from += few)
    for (int y = 0; y < jet.height; y++) {
      const int after = std::min(reach, y), before = std::min(reach, jet.height - 1 - y);
      for (int x = from; x < std::min(jet.width, from + few); x++)
        each_vector<T>(cp, [&](auto wide, int v) {
          T *to[1] = {gS + ((size_t)y * jet.width + x) * cp + v};
          fan_in<T, D, decltype(wide)::value, 1>(Q + y * line + (size_t)x * D * cp + v, cp, -line, before, after, centre, size, to);
        });
    }
}

// Y[q][x] = sum_j sum_k cols_j[k] M[q][x + k][j]: what is left after the channels of F were mixed (stride 1). With two sets of taps, two such sums of
// the same M.
template <class T, int D, int SETS> static void sum_columns(const Jet &jet, const T *M, const T *const *taps, int rows, T *const *Y) {
  const int op = jet.out, reach = jet.reach_x, size = 2 * reach + 1;
  const T *centres[SETS];
  for (int s = 0; s < SETS; s++) centres[s] = taps[s] + reach;
  for (int q = 0; q < rows; q++)
    for (int x = 0; x < jet.width; x++) {
      const int below = std::min(reach, x), above = std::min(reach, jet.width - 1 - x);
      const size_t at = (size_t)q * jet.width + x;
      each_vector<T>(op, [&](auto wide, int v) {
        T *to[SETS];
        for (int s = 0; s < SETS; s++) to[s] = Y[s] + at * op + v;
        fan_in<T, D, decltype(wide)::value, SETS>(M + at * D * op + v, op, (ptrdiff_t)D * op, below, above, centres, size, to);
      });
    }
}

// gM[q][x][j] = sum_k cols_j[k] G[q][x - k]: its transpose.
template <class T, int D> static void turn_columns(const Jet &jet, const T *G, const T *taps, int rows, T *gM) {
  const int op = jet.out, reach = jet.reach_x, size = 2 * reach + 1;
  for (int q = 0; q < rows; q++)
    for (int x = 0; x < jet.width; x++) {
      const int after = std::min(reach, x), before = std::min(reach, jet.width - 1 - x);
      const size_t at = (size_t)q * jet.width + x;
      each_vector<T>(op, [&](auto wide, int v) {
        fan_out<T, D, decltype(wide)::value>(G + at * op + v, -(ptrdiff_t)op, before, after, taps + reach, size, gM + at * D * op + v, op);
      });
    }
}

} // namespace CONTINUA_ISA
