// Vectors of one width per build, by the compiler's own vector types: AVX-512, AVX2 and portable builds share every line below.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#define CONTINUA_VECTOR_BYTES 64
#define CONTINUA_TILE_ROWS 12
#elif defined(__AVX2__)
#define CONTINUA_VECTOR_BYTES 32
#define CONTINUA_TILE_ROWS 6
#else
#define CONTINUA_VECTOR_BYTES 16
#define CONTINUA_TILE_ROWS 4
#endif

namespace CONTINUA_ISA {

template <class T> struct Simd {
  typedef T vec __attribute__((vector_size(CONTINUA_VECTOR_BYTES)));
  typedef T loose __attribute__((vector_size(CONTINUA_VECTOR_BYTES), aligned(sizeof(T)), may_alias)); // any address
  static constexpr int width = CONTINUA_VECTOR_BYTES / sizeof(T);
};

template <class T> using Vec = typename Simd<T>::vec;

template <class T> static inline Vec<T> load(const T *p) { return *(const typename Simd<T>::loose *)p; }
template <class T> static inline void store(T *p, Vec<T> v) { *(typename Simd<T>::loose *)p = v; }
template <class T> static inline Vec<T> splat(T x) { return x - Vec<T>{}; }
template <class T> static inline T sum(Vec<T> v) {
  T s = 0;
  for (int i = 0; i < Simd<T>::width; i++) s += v[i];
  return s;
}
template <class T> static inline int padded(int n) { return (n + Simd<T>::width - 1) / Simd<T>::width * Simd<T>::width; }

// exp(x) - 1 for x <= 0, to about one unit in the last place: x = n ln 2 + r, exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1).
static inline Vec<float> expm1_negative(Vec<float> x) {
  typedef int32_t ints __attribute__((vector_size(CONTINUA_VECTOR_BYTES)));
  x = x < -87.0f ? splat(-87.0f) : x;
  const float shift = 12582912.0f; // 1.5 * 2^23: adding it rounds to a whole number, held in the low bits
  Vec<float> z = x * 1.44269504088896341f + shift;
  Vec<float> n = z - shift;
  Vec<float> r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  Vec<float> p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r;
  ints bits = ((ints)z - 0x4B400000 + 127) << 23;
  Vec<float> scale = (Vec<float>)bits;
  return scale * p + (scale - 1.0f);
}
static inline Vec<double> expm1_negative(Vec<double> x) {
  Vec<double> y{};
  for (int i = 0; i < Simd<double>::width; i++) y[i] = std::expm1(x[i]);
  return y;
}

} // namespace CONTINUA_ISA
