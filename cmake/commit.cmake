# TRAINYARD_COMMIT: the commit that is built, unless it is given; found anew after every commit.
if(NOT DEFINED TRAINYARD_COMMIT)
  set(TRAINYARD_COMMIT unknown)
  find_program(TRAINYARD_GIT git)
  if(TRAINYARD_GIT AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
    execute_process(COMMAND ${TRAINYARD_GIT} rev-parse --short=12 HEAD
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET RESULT_VARIABLE code)
    if(code EQUAL 0)
      set(TRAINYARD_COMMIT ${found})
    endif()
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      ${CMAKE_SOURCE_DIR}/.git/logs/HEAD)
  endif()
endif()
