"""The API without ``await``, generated from the asynchronous one."""
