// The shapes that the attention kernels admit. The Python face reads the same table from here.
//
//   X(query heads, key heads)   query head h reads key head h / (query heads / key heads)
#pragma once

#define VERIFY_HEAD_GROUPS(X) \
    X(6, 1)                   \
    X(4, 1)                   \
    X(8, 1)                   \
    X(12, 2)

namespace shapes {

constexpr int kHeadDim = 256;

__device__ constexpr bool head_group_admitted(int query_heads, int key_heads) {
#define VERIFY_MATCH(q, kv) \
    if (query_heads == q && key_heads == kv) return true;
    VERIFY_HEAD_GROUPS(VERIFY_MATCH)
#undef VERIFY_MATCH
    return false;
}

}  // namespace shapes
