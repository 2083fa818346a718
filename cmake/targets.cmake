# Three functions define every target.
#
#   ty_library(NAME base_core SRCS a.cc DEPS absl::status ...)
#   ty_program(NAME trainyard-agent SRCS main.cc DEPS ...)
#   ty_test(NAME placement_test SRCS placement_test.cc DEPS runtime_placement LABELS unit [TIMEOUT 60])
#
# Sources are listed, never globbed. Libraries are static; headers are included from the root of the
# tree ("runtime/placement/placement.h").
function(ty_library)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS})
    target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_include_directories(${ARG_NAME} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

function(ty_program)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
endfunction()

# One ctest entry per test program. Programs that the test starts are found through the environment
# variable TRAINYARD_BIN (the build's bin folder), sources through TRAINYARD_SOURCE.
function(ty_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS;PROGRAMS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(ARG_PROGRAMS)
    add_dependencies(${ARG_NAME} ${ARG_PROGRAMS})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME})
  set_tests_properties(${ARG_NAME} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "TRAINYARD_BIN=${CMAKE_BINARY_DIR}/bin;TRAINYARD_SOURCE=${PROJECT_SOURCE_DIR}")
endfunction()

# One ctest entry for a Python script (standard library only); exit code 77 means skipped, the last line
# of its output says why.
#
#   ty_script_test(NAME tidy SCRIPT tidy.py LABELS unit [ARGS ...] [PROGRAMS ...] [TIMEOUT 60])
function(ty_script_test)
  cmake_parse_arguments(ARG "" "NAME;SCRIPT;TIMEOUT" "ARGS;LABELS;PROGRAMS" ${ARGN})
  find_program(TRAINYARD_PYTHON python3 REQUIRED)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_PROGRAMS)
    add_custom_target(${ARG_NAME}_programs ALL DEPENDS ${ARG_PROGRAMS})
  endif()
  add_test(NAME ${ARG_NAME}
    COMMAND ${TRAINYARD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGS})
  set_tests_properties(${ARG_NAME} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "TRAINYARD_BIN=${CMAKE_BINARY_DIR}/bin;TRAINYARD_SOURCE=${PROJECT_SOURCE_DIR};PYTHONDONTWRITEBYTECODE=1")
endfunction()
