// Small matrix products that live in the first two caches. Row-major; the right-hand factor is packed in panels of two vectors.
#pragma once
#include "simd.h"
#include <type_traits>

namespace CONTINUA_ISA {

// How a (rows x cols) matrix, cols a multiple of the vector width, lies in panels: panel by panel, each `rows` lines of 2 (the last maybe 1) vectors.
template <class T> static inline size_t panel_start(int rows, int col) { return (size_t)rows * col; }

template <class T> static void pack_panels(int rows, int cols, const T *from, int ld, T *to) {
  const int W = Simd<T>::width;
  for (int j = 0; j < cols; j += 2 * W) {
    const int wide = cols - j < 2 * W ? cols - j : 2 * W;
    T *panel = to + panel_start<T>(rows, j);
    for (int p = 0; p < rows; p++) std::memcpy(panel + (size_t)p * wide, from + (size_t)p * ld + j, sizeof(T) * wide);
  }
}

template <class T, int MR, int NV, bool ADD> static inline void tile(int k, const T *A, int lda, const T *B, T *C, int ldc) {
  const int W = Simd<T>::width;
  Vec<T> c[MR][NV];
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NV; j++) c[i][j] = ADD ? load(C + (size_t)i * ldc + W * j) : Vec<T>{};
  for (int p = 0; p < k; p++) {
    Vec<T> b[NV];
    for (int j = 0; j < NV; j++) b[j] = load(B + (size_t)p * NV * W + W * j);
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++) {
      const T a = A[(size_t)i * lda + p];
      for (int j = 0; j < NV; j++) c[i][j] += a * b[j];
    }
  }
  for (int i = 0; i < MR; i++)
    for (int j = 0; j < NV; j++) store(C + (size_t)i * ldc + W * j, c[i][j]);
}

template <class T, int NV, bool ADD> static inline void tiles(int m, int k, const T *A, int lda, const T *B, T *C, int ldc) {
  const int MR = CONTINUA_TILE_ROWS;
  int i = 0;
  for (; i + MR <= m; i += MR) tile<T, MR, NV, ADD>(k, A + (size_t)i * lda, lda, B, C + (size_t)i * ldc, ldc);
  for (; i + 4 <= m; i += 4) tile<T, 4, NV, ADD>(k, A + (size_t)i * lda, lda, B, C + (size_t)i * ldc, ldc);
  for (; i + 2 <= m; i += 2) tile<T, 2, NV, ADD>(k, A + (size_t)i * lda, lda, B, C + (size_t)i * ldc, ldc);
  for (; i < m; i++) tile<T, 1, NV, ADD>(k, A + (size_t)i * lda, lda, B, C + (size_t)i * ldc, ldc);
}

// C (m x n) = A (m x k) B, B packed (k x n).
template <class T> static void multiply(int m, int n, int k, const T *A, int lda, const T *B, T *C, int ldc) {
  const int W = Simd<T>::width;
  int j = 0;
  for (; j + 2 * W <= n; j += 2 * W) tiles<T, 2, false>(m, k, A, lda, B + panel_start<T>(k, j), C + j, ldc);
  if (j < n) tiles<T, 1, false>(m, k, A, lda, B + panel_start<T>(k, j), C + j, ldc);
}

template <class T, int KR, int NV> static inline void tile_transposed(int m, const T *A, int lda, const T *G, int ldg, T *C, int ldc) {
  const int W = Simd<T>::width;
  Vec<T> c[KR][NV];
  for (int i = 0; i < KR; i++)
    for (int j = 0; j < NV; j++) c[i][j] = load(C + (size_t)i * ldc + W * j);
  for (int p = 0; p < m; p++) {
    Vec<T> g[NV];
    for (int j = 0; j < NV; j++) g[j] = load(G + (size_t)p * ldg + W * j);
#pragma GCC unroll 16
    for (int i = 0; i < KR; i++) {
      const T a = A[(size_t)p * lda + i];
      for (int j = 0; j < NV; j++) c[i][j] += a * g[j];
    }
  }
  for (int i = 0; i < KR; i++)
    for (int j = 0; j < NV; j++) store(C + (size_t)i * ldc + W * j, c[i][j]);
}

// C (k x n) += A^T G with A (m x k) and G (m x n); k and n multiples of the vector width.
template <class T> static void add_transposed(int m, int n, int k, const T *A, int lda, const T *G, int ldg, T *C, int ldc) {
  const int W = Simd<T>::width, KR = CONTINUA_TILE_ROWS;
  int i = 0;
  auto strips = [&](auto high) {
    constexpr int H = decltype(high)::value;
    for (; i + H <= k; i += H) {
      int j = 0;
      for (; j + 2 * W <= n; j += 2 * W) tile_transposed<T, H, 2>(m, A + i, lda, G + j, ldg, C + (size_t)i * ldc + j, ldc);
      if (j < n) tile_transposed<T, H, 1>(m, A + i, lda, G + j, ldg, C + (size_t)i * ldc + j, ldc);
    }
  };
  strips(std::integral_constant<int, KR>{});
  strips(std::integral_constant<int, (KR > 8 ? 8 : 4)>{});
  strips(std::integral_constant<int, (KR > 8 ? 4 : 2)>{});
  strips(std::integral_constant<int, 2>{});
}

} // namespace CONTINUA_ISA
