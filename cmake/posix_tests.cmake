# What tests need on POSIX systems beyond their programs: subgroups of other sizes, scripts, libraries that
# are preloaded, layers of the Vulkan loader, and a program for jobs of several processes.

# Software devices have subgroups of LP_NATIVE_VECTOR_WIDTH / 32 invocations.
set(subgroup_tests
  "attention=AttentionGpu/2.ForwardMatchesCpu" "classifier=FusedClassifier*/2.*"
  "encoder=Encoder/2.BackwardMatchesFloat"
  "global_norm=*/2.*" "layernorm=Layernorm/1.*Forward*" "matmul=Matmul/2.Dbias*"
  "gradient_sum=*/2.*" "adamw=AdamWTyped/0.*"
  "muon=MuonTyped/2.GpuMatchesCpu"
  "decode_linear=*/2.*" "decode_attention=*/2.*" "next_token=*/2.*")
foreach(entry ${subgroup_tests})
  string(REGEX MATCH "^([a-z_]+)=(.*)$" entry "${entry}")
  set(program ${CMAKE_MATCH_1}_test)
  set(filter ${CMAKE_MATCH_2})
  foreach(size 4 8 16)
    math(EXPR bits "${size} * 32")
    set(name subgroups_of_${size}_${program})
    add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/with_subgroups.sh ${size}
      $<TARGET_FILE:${program}> --gtest_filter=${filter})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS check
      ENVIRONMENT "LP_NATIVE_VECTOR_WIDTH=${bits};LAUNCHPAD_VALIDATION=0")
  endforeach()
endforeach()
add_test(NAME includes COMMAND ${PROJECT_SOURCE_DIR}/tests/check_includes.sh)
add_test(NAME growth COMMAND ${PROJECT_SOURCE_DIR}/tests/check_growth.sh)
if(NOT SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)  # those builds inline less
  add_test(NAME simd_clones COMMAND ${PROJECT_SOURCE_DIR}/tests/check_simd_clones.sh $<TARGET_FILE:llmc>)
  set_tests_properties(simd_clones PROPERTIES SKIP_RETURN_CODE 77)
endif()
if(MPI_CXX_FOUND AND NOT SANITIZE)
  set(machines ${PROJECT_SOURCE_DIR}/dev/two_machines.sh -b ${CMAKE_CURRENT_BINARY_DIR})
  add_test(NAME two_machines COMMAND ${machines} 10gbit -- -x 3)
  add_test(NAME four_machines COMMAND ${machines} -m 4 10gbit -- -x 3)
  add_test(NAME machine_that_dies COMMAND ${machines} -f kill 10gbit)
  add_test(NAME machine_that_hangs COMMAND ${machines} -f stop 10gbit -- --timeout 0.3)
  add_test(NAME machine_without_power COMMAND ${machines} -f down 10gbit)
  set_tests_properties(two_machines four_machines machine_that_dies machine_that_hangs machine_without_power
    PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77)
  set_tests_properties(four_machines machine_that_hangs machine_without_power PROPERTIES LABELS check)
endif()
if(NOT SANITIZE)  # where it would compile the same
  add_test(NAME macos COMMAND ${PROJECT_SOURCE_DIR}/tests/compile_for_macos.sh ${PROJECT_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR}/macos)
  set_tests_properties(macos PROPERTIES TIMEOUT 1800 SKIP_RETURN_CODE 77 LABELS check
    COST 1000)  # starts first
endif()
add_library(file_fault MODULE tests/file_fault.cpp)  # preloaded by the tests below
target_compile_options(file_fault PRIVATE -fno-sanitize=all)
target_link_options(file_fault PRIVATE -fno-sanitize=all)
target_link_libraries(file_fault PRIVATE ${CMAKE_DL_LIBS})
foreach(test file_fault_test fault_kinds_test file_systems_test distributed_faults_test two_programs_test
    resume_grid_test lease_test text_faults_test)
  add_dependencies(${test} file_fault)
endforeach()
set(FAULT_LAYER ${CMAKE_CURRENT_BINARY_DIR}/vulkan_fault_layer)  # loaded by the Vulkan loader
add_library(vulkan_fault_layer MODULE tests/vulkan_fault_layer/fault_layer.cpp)
target_link_options(vulkan_fault_layer PRIVATE LINKER:-z,nodelete)  # counts through several instances
target_include_directories(vulkan_fault_layer PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(vulkan_fault_layer SYSTEM PRIVATE ${VULKAN_INCLUDE})
set_target_properties(vulkan_fault_layer PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${FAULT_LAYER})
configure_file(tests/vulkan_fault_layer/VkLayer_llmc_fault.json
  ${FAULT_LAYER}/VkLayer_llmc_fault.json COPYONLY)
add_dependencies(vulkan_faults_test vulkan_fault_layer)

# Devices unlike those of CI, by tests/vulkan_device_layer.
set(DEVICE_LAYER ${CMAKE_CURRENT_BINARY_DIR}/vulkan_device_layer)
add_library(vulkan_device_layer MODULE tests/vulkan_device_layer/device_layer.cpp)
target_include_directories(vulkan_device_layer PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(vulkan_device_layer SYSTEM PRIVATE ${VULKAN_INCLUDE})
set_target_properties(vulkan_device_layer PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${DEVICE_LAYER})
configure_file(tests/vulkan_device_layer/VkLayer_llmc_device.json
  ${DEVICE_LAYER}/VkLayer_llmc_device.json COPYONLY)
add_dependencies(other_devices_test vulkan_device_layer)
add_dependencies(unlike_devices_test vulkan_device_layer)
