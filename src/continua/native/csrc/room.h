// Working memory of the kernels.
#pragma once
#include <cstddef>
#include <new>

namespace CONTINUA_ISA {

// Memory of one thread, kept between calls.
struct Room {
  char *start = nullptr;
  size_t size = 0, used = 0;
  ~Room() { ::operator delete[](start, std::align_val_t(64)); }
  void reserve(size_t bytes) {
    if (bytes > size) {
      ::operator delete[](start, std::align_val_t(64));
      start = nullptr, size = 0;
      start = (char *)::operator new[](bytes, std::align_val_t(64));
      size = bytes;
    }
    used = 0;
  }
  // Memory beyond this is given back after a call.
  static constexpr size_t KEPT = 32 << 20;
  void trim() {
    if (size > KEPT) ::operator delete[](start, std::align_val_t(64)), start = nullptr, size = 0;
  }
  template <class T> T *take(size_t count) {
    T *at = (T *)(start + used);
    used += (count * sizeof(T) + 63) / 64 * 64;
    return at;
  }
};
static thread_local Room room; // of one image at work
static thread_local Room hall; // of one call: what all images share
static thread_local Room halfway; // of a few images at work: maps between two operators

} // namespace CONTINUA_ISA
