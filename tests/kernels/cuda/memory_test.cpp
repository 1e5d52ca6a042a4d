// The GPU as a device: transfers, and errors that say what to do.
#include <numeric>

#include "tests/support/both_backends.h"

namespace q2::test {
namespace {

class CudaMemory : public BothBackends {};

TEST_F(CudaMemory, WhatIsUploadedComesBack) {
    for (const int64_t count :
         {1, 1000, 3 << 20, 12345678}) {  // below, at and beyond the staging ring's slots
        std::vector<int32_t> values(size_t(count), 0);
        std::iota(values.begin(), values.end(), 7);
        const DeviceMemory memory(cuda(), size_t(count) * 4);
        std::vector<int32_t> source = values;
        cuda().ops->upload(cuda(), memory.data(), source.data(), size_t(count) * 4);
        std::fill(source.begin(), source.end(), -1);  // the source may change once upload returns
        std::vector<int32_t> back(size_t(count), 0);
        cuda().ops->download(cuda(), back.data(), memory.data(), size_t(count) * 4);
        EXPECT_EQ(back, values);
        cuda().ops->zero(cuda(), memory.data(), size_t(count) * 4);
        cuda().ops->download(cuda(), back.data(), memory.data(), size_t(count) * 4);
        EXPECT_EQ(std::accumulate(back.begin(), back.end(), int64_t(0)), 0);
    }
}

TEST_F(CudaMemory, PageLockedMemoryOfTheHostIsOrdinaryMemory) {
    const std::vector<float> values(1 << 20, 1.5f);
    const DeviceMemory memory(cuda(), values.size() * 4);
    cuda().ops->upload(cuda(), memory.data(), values.data(), memory.bytes());
    const HostMemory host(cuda(), memory.bytes());
    cuda().ops->download(cuda(), host.data(), memory.data(), memory.bytes());
    EXPECT_EQ(std::memcmp(host.data(), values.data(), memory.bytes()), 0);
    try {
        cuda().ops->allocate_host(cuda(), size_t(1) << 50);
        FAIL() << "a pebibyte was page-locked";
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::device);
    }
}

TEST_F(CudaMemory, TooMuchIsRefusedWithSizes) {
    try {
        cuda().ops->allocate(cuda(), size_t(1) << 50);
        FAIL() << "a pebibyte was allocated";
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::device);
        EXPECT_NE(std::string(e.what()).find("1073741824 MiB"), std::string::npos) << e.what();
    }
    const DeviceMemory usable(cuda(), 1000);  // the failure has left nothing behind
    cuda().ops->zero(cuda(), usable.data(), 1000);
    cuda().ops->synchronize(cuda());
}

TEST_F(CudaMemory, AnAbsentDeviceIsRefused) {
    Context ctx;
    ctx.ops = cuda_ops();
    try {
        ctx.ops->open(ctx, 4711);
        FAIL() << "device 4711 was opened";
    } catch (const Error& e) {
        EXPECT_EQ(e.code, Exit::device);
        EXPECT_NE(std::string(e.what()).find("4711"), std::string::npos) << e.what();
    }
    EXPECT_EQ(ctx.backend, nullptr);
}

TEST_F(CudaMemory, DescribesTheDevice) {
    EXPECT_NE(cuda().ops->describe(cuda()).find("MiB"), std::string::npos);
}

}  // namespace
}  // namespace q2::test
