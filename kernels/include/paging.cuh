// A paged cache: logical position -> page of the block table -> place in memory.
#pragma once

namespace paging {

// Bits of the device-side error word. A kernel that sets one leaves the positions concerned alone.
constexpr int kLengthOutOfRange = 1;  // sequence length negative or beyond a capacity
constexpr int kPageOutOfRange = 2;    // physical block id outside the cache

}  // namespace paging
