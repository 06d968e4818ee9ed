// Spread numbered pieces of work over threads: PyTorch's own pool where it is known, else threads of our own.
#pragma once
#include "api.h"
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

template <class F> struct Pieces {
  std::atomic<int> next{0};
  int count;
  const F &each;
  static void work(void *given) {
    Pieces &all = *(Pieces *)given;
    for (int i; (i = all.next.fetch_add(1, std::memory_order_relaxed)) < all.count;) all.each(i);
  }
};

template <class F> static void each(int count, int threads, Parallel parallel, const F &one) {
  Pieces<F> all{{0}, count, one};
  threads = std::max(1, std::min(threads, count));
  if (threads == 1) {
    Pieces<F>::work(&all);
  } else if (parallel) {
    parallel(Pieces<F>::work, &all, (unsigned)threads, 0);
  } else {
    std::vector<std::thread> others;
    for (int i = 1; i < threads; i++) others.emplace_back(Pieces<F>::work, &all);
    Pieces<F>::work(&all);
    for (auto &other : others) other.join();
  }
}
