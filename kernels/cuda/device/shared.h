// The dynamic shared memory of a kernel, as an array of T.
#pragma once

namespace q2::cuda {

template <class T>
__device__ T* dynamic_shared() {
    extern __shared__ __align__(16) unsigned char dynamic_shared_bytes[];
    return reinterpret_cast<T*>(dynamic_shared_bytes);
}

}  // namespace q2::cuda
