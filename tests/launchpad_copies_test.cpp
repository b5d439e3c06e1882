// Tests of asynchronous copies, in every memory mode of the test device, submitted at once and as
// late as possible.
#include "tests/launchpad_test.h"

// The test pads start what may run late as late as possible; a fresh one starts it at once.
template <class Check>
static void for_each_order(Check check) {
    for_each_mode([&](LaunchPad& pad) {
        check(pad);
        SCOPED_TRACE("at once");
        LaunchPadOptions options = fresh_options(pad);
        options.reverse_groups = false;
        LaunchPad other(options);
        check(other);
    });
}

static CopyRange whole(const DeviceArray<float>& to, const DeviceArray<float>& from) {
    return {to.data, from.data, from.size * sizeof(float)};
}

// Copies see the commands before them, and finish_copies() lets later commands see them and write the source.
// In between, commands run that have nothing to do with them.
TEST(AsyncCopies, Order) {
    for_each_order([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), x(pad, std::vector<float>{0.0f});
        DeviceArray<float> copied(pad, 1), other(pad, std::vector<float>{0.0f});
        DeviceArray<float> total(pad, std::vector<float>{0.0f});
        for (const bool recorded : {false, true}) {
            pad.fill(total, 0, 4);
            pad.fill(other, 0, 4);
            pad.fill(x, 0, 4);
            const auto commands = [&] {
                add_to(pad, x, one, 1);
                pad.copy_async({whole(copied, x)});
                for (int i = 0; i < 3; i++) add_to(pad, other, one, 1);
                pad.finish_copies();
                add_to(pad, x, one, 1, 10.0f);
                add_to(pad, total, copied, 1);
            };
            if (recorded) pad.begin_recording();
            commands();
            if (recorded) {
                Recording* recording = pad.end_recording();
                pad.replay(recording);
                pad.replay(recording);
                pad.forget(recording);
            } else {
                commands();
            }
            EXPECT_EQ(total.values()[0], 1.0f + 12.0f);
            EXPECT_EQ(copied.values()[0], 12.0f);
            EXPECT_EQ(other.values()[0], 6.0f);
            EXPECT_EQ(x.values()[0], 22.0f);
        }
    });
}

// Each call waits for the copies of the calls before, and finishes them.
TEST(AsyncCopies, OneAfterTheOther) {
    for_each_order([](LaunchPad& pad) {
        const std::vector<float> values = random_values(3001, 1);
        DeviceArray<float> x(pad, values), a(pad, values.size()), b(pad, values.size()),
            c(pad, values.size());
        DeviceArray<float> seen(pad, std::vector<float>{0.0f});
        pad.copy_async({whole(a, x)});
        pad.copy_async({whole(b, a)});
        add_to(pad, seen, a, 1);
        pad.copy_async({});  // finishes them, and copies nothing
        add_to(pad, seen, b, 1);
        pad.copy_async({{c.data, b.data, 1001 * 4}, {c + 1001, x + 1001, 2000 * 4}, {nullptr, nullptr, 0}});
        pad.finish_copies();
        pad.finish_copies();
        add_to(pad, seen, c, 1);
        EXPECT_EQ(seen.values()[0], values[0] + values[0] + values[0]);
        EXPECT_EQ(c.values(), values);
    });
}

// commit(), a ticket, download(), free() and a recording's end wait for copies.
TEST(AsyncCopies, NothingLeavesThemBehind) {
    for_each_order([](LaunchPad& pad) {
        const size_t n = 1 << 20, bytes = n * sizeof(float);
        const std::vector<float> values = random_values(n, 2);
        DeviceArray<float> x(pad, values), y(pad, n);
        float* host = pad.allocate<float>(n, "host", Placement::host);
        std::vector<float> registered(n);
        pad.register_buffer(registered.data(), bytes);
        const auto expect_copied = [&](const float* got) {
            EXPECT_TRUE(std::equal(values.begin(), values.end(), got));
        };
        pad.copy_async({{host, x, bytes}});
        pad.commit(true);
        expect_copied(host);

        pad.copy_async({{registered.data(), x, bytes}});
        const Ticket ticket = pad.commit();
        EXPECT_EQ(pad.commit(), ticket);
        pad.wait(ticket);
        expect_copied(registered.data());

        pad.copy_async({{y, registered.data(), bytes}});
        expect_copied(y.values().data());  // downloads

        float* freed = pad.allocate<float>(n, "freed");
        pad.copy_async({{freed, x, bytes}});
        pad.free(freed);
        freed = pad.allocate<float>(n, "freed");
        pad.copy(freed, x, bytes);
        pad.copy_async({{y, freed, bytes}});
        pad.free(freed);

        pad.begin_recording();
        pad.copy_async({{y, x, bytes}});
        Recording* recording = pad.end_recording();
        pad.fill(y, 0, bytes);
        pad.replay(recording);
        pad.copy(host, y, bytes);
        pad.fill(y, 0, bytes);
        pad.commit(true);
        expect_copied(host);
        pad.replay(recording);
        pad.forget(recording);
        expect_copied(y.values().data());
        pad.copy_async({{registered.data(), y, bytes}});
        pad.unregister_buffer(registered.data());
        expect_copied(registered.data());
        pad.free(host);
    });
}

// Replays wait for the copies of their own, whatever was copied before.
TEST(AsyncCopies, Replays) {
    for_each_order([](LaunchPad& pad) {
        DeviceArray<float> one(pad, std::vector<float>{1.0f}), x(pad, std::vector<float>{0.0f});
        DeviceArray<float> y(pad, 1), z(pad, 1), total(pad, std::vector<float>{0.0f});
        pad.begin_recording();
        for (DeviceArray<float>* to : {&y, &z}) {
            pad.finish_copies();
            add_to(pad, x, one, 1);
            pad.copy_async({whole(*to, x)});
        }
        add_to(pad, total, y, 1);
        pad.finish_copies();
        add_to(pad, total, z, 1);
        pad.copy_async({whole(y, total)});
        Recording* recording = pad.end_recording();
        float want = 0;
        for (int i = 0; i < 30; i++) {
            pad.replay(recording);
            want += float(2 * i + 1) + float(2 * i + 2);
            if (i % 3 == 0) pad.copy_async({whole(z, one)});
            if (i % 5 == 0) pad.commit(i % 2 == 0);
        }
        EXPECT_EQ(total.values()[0], want);
        EXPECT_EQ(y.values()[0], want);
        pad.forget(recording);
    });
}

// Copies that are submitted late expose a command that writes a source before finish_copies().
TEST(AsyncCopies, LateCopiesExposeAWrittenSource) {
    for_each_mode([](LaunchPad& pad) {
        if (pad.device().type != DeviceType::software) return;
        DeviceArray<float> x(pad, std::vector<float>{1.0f}), y(pad, std::vector<float>{0.0f});
        DeviceArray<float> one(pad, std::vector<float>{1.0f});
        pad.copy_async({whole(y, x)});
        add_to(pad, x, one, 1);
        EXPECT_EQ(y.values()[0], 2.0f);
    });
}

TEST(AsyncCopies, Misuse) {
    for_each_order([](LaunchPad& pad) {
        DeviceArray<float> x(pad, std::vector<float>{1.0f}), y(pad, std::vector<float>{0.0f});
        const auto copy = [&] { pad.copy_async({whole(y, x)}); };
        {
            const ConcurrentGroup group(&pad);
            expect_error("a group is open", copy);
        }
        expect_error("copy to", [&] { pad.copy_async({{y.data, x.data, 4}, {y + 16, x.data, 4}}); });
        copy();
        expect_error("call finish_copies() first", [&] { pad.at(y.data, 1); });
        expect_error("call finish_copies() first", [&] { pad.fill(y, 0, 4); });
        pad.finish_copies();
        pad.fill(y, 0, 4);
        const float on_the_stack = 0;
        expect_error("copy from", [&] { pad.copy_async({{y.data, &on_the_stack, 4}}); });
        EXPECT_EQ(y.values()[0], 0.0f);
        pad.dry_run(copy);
        EXPECT_EQ(y.values()[0], 0.0f);
        float* freed = pad.allocate<float>(1, "freed");
        pad.begin_recording();
        pad.copy_async({{y.data, freed, 4}});
        Recording* recording = pad.end_recording();
        pad.free(freed);
        expect_error("have been freed", [&] { pad.replay(recording); });
        pad.forget(recording);
        copy();
        EXPECT_EQ(y.values()[0], 1.0f);
    });
}
