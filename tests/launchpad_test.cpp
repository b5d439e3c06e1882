// Tests of the launchpad in every memory mode of the test device: memory, addresses, copies, scratch memory,
// dispatches, groups and timing. launchpad_recording_test.cpp tests what runs later,
// launchpad_dry_run_test.cpp dry runs and the pipeline cache, launchpad_device_test.cpp devices, errors and
// the validation layer.
#include "tests/launchpad_test.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

static std::vector<char> some_bytes(size_t n, uint32_t seed) {
    std::vector<char> bytes(n);
    for (size_t i = 0; i < n; i++) bytes[i] = char((i * 2654435761u + seed) >> 13);
    return bytes;
}

TEST(Memory, AllocateAndFree) {
    for_each_mode([](LaunchPad& pad) {
        const uint64_t before = pad.allocated_bytes();
        std::vector<void*> pointers;
        for (size_t bytes : {0, 1, 63, 64, 65, 1000003}) {
            pointers.push_back(pad.allocate(bytes, "test"));
            EXPECT_EQ(uintptr_t(pointers.back()) % 64, 0u);
            EXPECT_NE(pad.at(static_cast<char*>(pointers.back()), bytes), 0u);
        }
        EXPECT_GE(pad.allocated_bytes(), before + 1 + 63 + 64 + 65 + 1000003);
        expect_error("was not returned by allocate", [&] { pad.free(static_cast<char*>(pointers[5]) + 64); });
        for (void* p : pointers) pad.free(p);
        EXPECT_EQ(pad.allocated_bytes(), before);
        expect_error("was not returned by allocate", [&] { pad.free(pointers[5]); });
        pad.free(nullptr);
    });
}

TEST(Memory, Addresses) {
    for_each_mode([](LaunchPad& pad) {
        float* p = pad.allocate<float>(1024, "test");
        float* q = pad.allocate<float>(1024, "test");
        const uint64_t start = pad.at(p, 1024);
        EXPECT_EQ(pad.at(p + 100, 924), start + 400);
        EXPECT_EQ(pad.at(p + 1023, 1), start + 4092);
        EXPECT_EQ(pad.at<float>(nullptr, 5), 0u);
        expect_error("not inside live GPU-visible memory", [&] { pad.at(p, 1025); });
        expect_error("not inside live GPU-visible memory", [&] { pad.at(p + 1, 1024); });
        expect_error("not inside live GPU-visible memory", [&] { pad.at(p, SIZE_MAX / 4); });
        const float on_the_stack = 0;
        expect_error("not inside live GPU-visible memory", [&] { pad.at(&on_the_stack, 1); });
        pad.free(p);
        expect_error("not inside live GPU-visible memory", [&] { pad.at(p, 1); });
        EXPECT_NE(pad.at(q, 1024), 0u);
        pad.free(q);
    });
}

TEST(Memory, UploadAndDownload) {
    for_each_mode([](LaunchPad& pad) {
        const size_t capacity = (40 << 20) + 64;
        char* p = static_cast<char*>(pad.allocate(capacity, "test"));
        for (size_t bytes :
             {size_t(1), size_t(2), size_t(4), size_t(7), size_t(64), size_t(4095), size_t(65536 + 4),
              size_t(4 << 20), size_t((4 << 20) + 4), size_t((16 << 20) + 1), size_t(40 << 20)})
            for (size_t offset : {0, 1, 4, 7}) {
                SCOPED_TRACE(format_string("%zu bytes at offset %zu", bytes, offset));
                const size_t end = std::min(offset + bytes + 64, capacity) / 4 * 4;
                pad.fill(p, 0x55555555, end);
                const std::vector<char> bytes_in = some_bytes(bytes, uint32_t(offset));
                pad.upload(p + offset, bytes_in.data(), bytes);
                std::vector<char> all(end);
                pad.download(all.data(), p, end);
                EXPECT_TRUE(std::equal(bytes_in.begin(), bytes_in.end(), all.begin() + offset));
                EXPECT_EQ(std::count(all.begin(), all.begin() + offset, 0x55), ptrdiff_t(offset));
                EXPECT_EQ(std::count(all.begin() + offset + bytes, all.end(), 0x55),
                          ptrdiff_t(end - offset - bytes));
                std::vector<char> part(bytes);
                pad.download(part.data(), p + offset, bytes);
                EXPECT_TRUE(part == bytes_in);
            }
        pad.upload(p, nullptr, 0);
        pad.download(nullptr, p, 0);
        expect_error("not inside live", [&] { pad.upload(p + 1, some_bytes(capacity, 0).data(), capacity); });
        expect_error("not inside live", [&] {
            std::vector<char> v(capacity);
            pad.download(v.data(), p + 64, capacity);
        });
        pad.free(p);
    });
}

TEST(Memory, StreamOrder) {
    for_each_mode([](LaunchPad& pad) {
        for (int n : {4, 1 << 21}) {  // one upload that fits into the command buffer, one that does not
            DeviceArray<float> total(pad, std::vector<float>{0.0f}), values(pad, n);
            float want = 0;
            for (int i = 1; i <= 5; i++) {
                std::vector<float> source = std::vector<float>(size_t(n), float(i));
                pad.upload(values, source.data(), source.size() * sizeof(float));
                source.assign(source.size(), -100.0f);  // upload() has copied the values
                add_to(pad, total, values, 4);
                want += 4.0f * float(i);
            }
            EXPECT_EQ(total.values()[0], want);
        }
    });
}

TEST(Memory, CopyAndFill) {
    for_each_mode([](LaunchPad& pad) {
        const std::vector<char> bytes = some_bytes(5000, 1);
        DeviceArray<char> from(pad, bytes), to(pad, std::vector<char>(5000, 9));
        pad.copy(to + 3, from + 1001, 2345);
        pad.copy(to, from, 0);
        std::vector<char> want(5000, 9);
        std::copy_n(bytes.begin() + 1001, 2345, want.begin() + 3);
        EXPECT_TRUE(to.values() == want);
        pad.fill(to + 4, 0x04030201, 8);
        for (int i = 0; i < 8; i++) want[4 + i] = char(i % 4 + 1);
        EXPECT_TRUE(to.values() == want);
        expect_error("multiples of 4", [&] { pad.fill(to + 1, 0, 4); });
        expect_error("multiples of 4", [&] { pad.fill(to, 0, 5); });
        expect_error("copy to", [&] { pad.copy(to + 4999, from, 500); });
        expect_error("copy from", [&] { pad.copy(to, from + 4999, 500); });
    });
}

TEST(Memory, RegisteredMemory) {
    for_each_mode([](LaunchPad& pad) {
        std::vector<float> program(5001, 1.0f);
        float* values = program.data() + 1;  // aligned to 4 bytes only
        pad.register_buffer(values, 3000 * sizeof(float));
        float* second = program.data() + 3100;  // usually shares a page with the first range
        pad.register_buffer(second, 4);
        DeviceArray<float> total(pad, std::vector<float>{0.0f});
        add_to(pad, total, values, 3000);
        EXPECT_EQ(total.values()[0], 3000.0f);
        values[2999] = 11.0f;
        add_to(pad, total, values, 3000);
        EXPECT_EQ(total.values()[0], 6010.0f);
        add_to(pad, second, values, 3000);  // a kernel writes to host memory
        pad.commit(true);
        EXPECT_EQ(*second, 3011.0f);
        pad.upload(values, total.values().data(), 4);
        float back = 0;
        pad.download(&back, values, 4);
        EXPECT_EQ(back, 6010.0f);
        EXPECT_EQ(values[0], 6010.0f);
        EXPECT_EQ(program[0], 1.0f);
        expect_error("registered already", [&] { pad.register_buffer(values + 5, 4); });
        expect_error("registered already", [&] { pad.register_buffer(program.data(), 100); });
        expect_error("nothing to register", [&] { pad.register_buffer(nullptr, 4); });
        expect_error("was not returned by allocate", [&] { pad.free(values); });
        expect_error("not inside live", [&] { pad.at(values, 3001); });
        pad.unregister_buffer(values);
        pad.unregister_buffer(second);
        expect_error("not inside live", [&] { pad.at(values, 1); });
        expect_error("was not registered", [&] { pad.unregister_buffer(values); });
        expect_error("was not registered", [&] { pad.unregister_buffer(total); });
    });
}

TEST(Memory, ReadbackPlacement) {
    for_each_mode([](LaunchPad& pad) {
        float* loss = pad.allocate<float>(16, "loss", Placement::host);
        DeviceArray<float> values(pad, std::vector<float>(100, 0.5f));
        pad.fill(loss, 0, 64);
        add_to(pad, loss, values, 100);
        pad.commit(true);
        EXPECT_EQ(loss[0], 50.0f);  // host-readable in every mode
        pad.free(loss);
    });
}

// Whether reading p would fault. The operating system tells by refusing to write p into a pipe.
static bool faults(const void* p) {
    int ends[2];
    if (pipe(ends)) return false;
    const bool refused = write(ends[1], p, 1) < 0 && errno == EFAULT;
    close(ends[0]);
    close(ends[1]);
    return refused;
}

TEST(Memory, StagedMemoryFaultsWhenTouched) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> values(pad, 5000);
        EXPECT_EQ(faults(values.data), pad.memory_mode() == MemoryMode::staged);
        EXPECT_EQ(faults(values.data + 4999), pad.memory_mode() == MemoryMode::staged);
    });
}

// Requests for a slot share its memory, which grows if a request needs more.
TEST(Scratch, GrowsAndIsShared) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        const uint64_t before = pad.allocated_bytes();
        EXPECT_EQ(pad.scratch(Scratch::norm, 0), nullptr);
        EXPECT_EQ(pad.allocated_bytes(), before);
        float* small = pad.scratch(Scratch::norm, 100);
        EXPECT_NE(pad.at(small, 100), 0u);
        const uint64_t small_bytes = pad.allocated_bytes() - before;
        EXPECT_GE(small_bytes, 100 * sizeof(float));
        for (size_t floats : {1, 50, 100}) EXPECT_EQ(pad.scratch(Scratch::norm, floats), small);
        EXPECT_EQ(pad.allocated_bytes(), before + small_bytes);
        EXPECT_NE(pad.scratch(Scratch::gemm, 100), small);
        EXPECT_EQ(pad.allocated_bytes(), before + 2 * small_bytes);

        float* large = pad.scratch(Scratch::norm, 5000);
        EXPECT_NE(pad.at(large, 5000), 0u);
        // Without a recording that may use it, the old memory has been freed.
        EXPECT_LT(pad.allocated_bytes(), before + 2 * small_bytes + 5000 * sizeof(float));
        for (size_t floats : {1, 100, 5000}) EXPECT_EQ(pad.scratch(Scratch::norm, floats), large);
        EXPECT_EQ(pad.scratch(Scratch::norm, 0), nullptr);
        pad.fill(large, 0x3f800000, 5000 * sizeof(float));
        DeviceArray<float> total(pad, std::vector<float>{0.0f});
        add_to(pad, total, large, 5000);
        EXPECT_EQ(total.values()[0], 5000.0f);
    });
}

// A recording that used a slot before it grew still replays correctly, and does not touch the new memory.
TEST(Scratch, RecordingsKeepTheirMemory) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        DeviceArray<float> values(pad, std::vector<float>{1, 2, 3}), total(pad, std::vector<float>{0.0f});
        float* small = pad.scratch(Scratch::norm, 4);
        pad.begin_recording();
        pad.fill(small, 0, 16);
        add_to(pad, small, values, 3);
        add_to(pad, total, small, 1);
        Recording* recording = pad.end_recording();
        const size_t n = 100000;
        float* large = pad.scratch(Scratch::norm, n);
        EXPECT_NE(large, small);
        pad.fill(large, 0x40000000, n * sizeof(float));
        for (int i = 0; i < 3; i++) pad.replay(recording);
        EXPECT_EQ(total.values()[0], 18.0f);
        std::vector<float> kept(n);
        pad.download(kept.data(), large, n * sizeof(float));
        EXPECT_EQ(kept, std::vector<float>(n, 2.0f));
        pad.forget(recording);
    });
}

TEST(Scratch, GrowsInsideARecording) {
    for_each_mode([](LaunchPad& like) {
        LaunchPad pad(fresh_options(like));
        DeviceArray<float> values(pad, std::vector<float>{1, 2, 3}), total(pad, std::vector<float>{0.0f});
        pad.begin_recording();
        float* small = pad.scratch(Scratch::layernorm, 4);
        pad.fill(small, 0, 16);
        add_to(pad, small, values, 3);
        float* large = pad.scratch(Scratch::layernorm, 5000);
        EXPECT_NE(large, small);
        pad.copy(large + 4999, small, 4);
        add_to(pad, total, large + 4999, 1);
        Recording* recording = pad.end_recording();
        for (int i = 0; i < 3; i++) pad.replay(recording);
        EXPECT_EQ(total.values()[0], 18.0f);
        pad.forget(recording);
    });
}

TEST(Commands, LongGridsFold) {
    for_each_mode([](LaunchPad& pad) {
        const int n = 65535 * 2 + 7;  // workgroups of one invocation; the usual limit of a dimension is 65535
        const std::vector<float> values = random_values(size_t(n) * 4, 1);
        DeviceArray<float> from(pad, values), to(pad, values.size() + 1);
        copy_vec4(pad, to, from, n, 1);
        std::vector<float> got = to.values();
        EXPECT_TRUE(std::isnan(got.back()));
        got.pop_back();
        EXPECT_TRUE(got == values);
    });
}

TEST(Commands, BadDispatches) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> values(pad, 64);
        const PeakCopyArgs args = {pad.at(values.data, 64), pad.at(values.data, 64), 1};
        const uint32_t too_large = pad.limits().max_block + 1;
        expect_error("no kernel is named 'peak_cpy_fp32'",
                     [&] { pad.dispatch("peak_cpy", {1}, {64}, args); });
        expect_error("invocations is not possible",
                     [&] { pad.dispatch("peak_copy", {1}, {too_large}, args); });
        expect_error("invocations is not possible", [&] { pad.dispatch("peak_copy", {1}, {0}, args); });
        expect_error("invocations is not possible", [&] { pad.dispatch("peak_copy", {1}, {}, args); });
        expect_error("workgroups is more than", [&] {
            pad.dispatch("peak_copy", {1, 1u << 30}, {64}, args);
        });
        expect_error("workgroups is more than", [&] { pad.dispatch("peak_copy", {1ull << 62}, {64}, args); });
        expect_error("workgroups is more than",
                     [&] { pad.dispatch("peak_copy", {65535ull << 32}, {64}, args); });
        pad.dispatch("peak_copy", {0}, {64}, args);  // nothing to compute
        pad.dispatch("peak_copy", {1, 0}, {64}, args);
        pad.dispatch("peak_copy", {1, 1, 0}, {64}, args);
        pad.commit(true);
        EXPECT_TRUE(std::isnan(values.values()[0]));
    });
}

TEST(Commands, GroupsAndBarriers) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> ones(pad, std::vector<float>(10, 1.0f)), a(pad, std::vector<float>{0.0f});
        DeviceArray<float> b(pad, std::vector<float>{0.0f}), c(pad, std::vector<float>{0.0f});
        {
            const ConcurrentGroup group(&pad);
            add_to(pad, a, ones, 10);
            add_to(pad, b, ones, 5);
            pad.barrier();
            add_to(pad, c, a, 1);
            pad.barrier();
            add_to(pad, c, b, 1, 2.0f);
            { const ConcurrentGroup nested(&pad); }
        }
        add_to(pad, b, c, 1);
        EXPECT_EQ(a.values()[0], 10.0f);
        EXPECT_EQ(c.values()[0], 20.0f);
        EXPECT_EQ(b.values()[0], 25.0f);
    });
}

// Uploads of one group wait for the commands before it, and those after it for them.
TEST(Commands, UploadsInAGroup) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> a(pad, std::vector<float>{1.0f}), b(pad, std::vector<float>{2.0f});
        DeviceArray<float> before(pad, std::vector<float>{0.0f});
        add_to(pad, before, a, 1);
        const float three = 3, four = 4;
        {
            const ConcurrentGroup group(&pad);
            pad.upload(a, &three, sizeof three);
            pad.upload(b, &four, sizeof four);
        }
        add_to(pad, b, a, 1);
        EXPECT_EQ(before.values()[0], 1.0f);
        EXPECT_EQ(a.values()[0], 3.0f);
        EXPECT_EQ(b.values()[0], 7.0f);
    });
}

// reverse_groups exposes a missing barrier inside a group, and respects one that is there.
TEST(Commands, ReversedGroups) {
    for_each_mode([](LaunchPad& pad) {
        for (const bool with_barrier : {true, false}) {
            DeviceArray<float> one(pad, std::vector<float>{1.0f}), a(pad, std::vector<float>{0.0f}),
                b(pad, std::vector<float>{0.0f});
            {
                const ConcurrentGroup group(&pad);
                add_to(pad, a, one, 1);
                if (with_barrier) pad.barrier();
                add_to(pad, b, a, 1);
            }
            EXPECT_EQ(a.values()[0], 1.0f);
            if (pad.device().type == DeviceType::software) {
                EXPECT_EQ(b.values()[0], with_barrier ? 1.0f : 0.0f);
            }
        }
    });
}

TEST(Commands, CommitAndWait) {
    for_each_mode([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f});
        float* total = pad.allocate<float>(1, "total", Placement::host);
        pad.fill(total, 0, 4);
        Ticket last = 0;
        for (int i = 0; i < 50; i++) {
            add_to(pad, total, one, 1);
            const Ticket ticket = pad.commit();
            EXPECT_GT(ticket, last);
            last = ticket;
        }
        EXPECT_EQ(pad.commit(), last);  // nothing to submit
        pad.wait(last);
        EXPECT_EQ(total[0], 50.0f);
        pad.wait(last - 10);
        pad.wait(0);
        expect_error("nothing was committed", [&] { pad.wait(last + 1); });
        pad.free(total);
    });
}

TEST(Time, KernelTimesCountCalls) {
    if (test_pads().empty()) GTEST_SKIP() << "LLMC_TEST_DEVICE=none";
    LaunchPadOptions options = fresh_options(*test_pads()[0]);
    options.timestamps = true;
    LaunchPad pad(options);
    DeviceArray<float> from(pad, random_values(4000, 1)), to(pad, 4000), total(pad, std::vector<float>{0.0f});
    for (int i = 0; i < 3; i++) copy_vec4(pad, to, from, 1000, 64);
    // more dispatches than a command buffer has timestamps for
    for (int i = 0; i < 1500; i++) add_to(pad, total, from, 1);
    pad.begin_recording();
    copy_vec4(pad, to, from, 1000, 64);
    copy_vec4(pad, to, from, 1000, 32);
    for (int i = 0; i < 1100; i++) add_to(pad, total, from, 1);
    Recording* recording = pad.end_recording();
    for (int i = 0; i < 4; i++) pad.replay(recording);
    const std::vector<KernelTime> times = pad.take_kernel_times();
    ASSERT_EQ(times.size(), 2u);
    EXPECT_GE(times[0].seconds, times[1].seconds);
    for (const KernelTime& time : times) {
        EXPECT_EQ(time.calls, time.name == "peak_copy_fp32" ? 11u : 1500u + 4 * 1100u) << time.name;
        EXPECT_EQ(time.work.bytes, time.name == "peak_copy_fp32" ? 11 * 32e3 : 0) << time.name;
        EXPECT_EQ(time.work.flops, time.name == "peak_copy_fp32" ? 11 * 5e3 : 0) << time.name;
        EXPECT_TRUE(time.seconds > 0 && time.seconds < 60) << time.seconds;
    }
    EXPECT_TRUE(pad.take_kernel_times().empty());
}

TEST(Time, GpuSeconds) {
    for_each_mode([](LaunchPad& pad) {
        const int n = 1 << 18;
        DeviceArray<float> from(pad, random_values(size_t(n) * 4, 1)), to(pad, size_t(n) * 4);
        EXPECT_TRUE(pad.take_kernel_times().empty());  // timestamps are off
        copy_vec4(pad, to, from, n, 64);
        const double seconds = pad.gpu_seconds([&] { copy_vec4(pad, to, from, n, 64); });
        EXPECT_TRUE(seconds > 0 && seconds < 60) << seconds;
        expect_error("no kernel is named",
                     [&] { pad.gpu_seconds([&] { pad.dispatch("nonsense", {1}, {64}, PeakCopyArgs{}); }); });
        EXPECT_TRUE(to.values() == from.values());  // the launchpad remains usable
    });
}

TEST(LaunchPads, TwoAtOnce) {
    for_each_mode([](LaunchPad& pad) {
        LaunchPad other(fresh_options(pad));
        DeviceArray<float> here(pad, std::vector<float>{1.0f}), there(other, std::vector<float>{10.0f});
        DeviceArray<float> total_here(pad, std::vector<float>{0.0f}),
            total_there(other, std::vector<float>{0.0f});
        for (int i = 0; i < 5; i++) {
            add_to(pad, total_here, here, 1);
            add_to(other, total_there, there, 1);
        }
        EXPECT_EQ(total_here.values()[0], 5.0f);
        EXPECT_EQ(total_there.values()[0], 50.0f);
        expect_error("not inside live", [&] { other.at(here.data, 1); });
    });
}
