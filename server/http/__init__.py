"""HTTP mechanics.  Reading order: ``problems`` (errors, RFC 9457), ``answers`` (models of JSON
answers), ``jsonable`` (values as JSON), ``request_head`` (headers, paths, conditions, ranges),
``negotiation`` (formats, CloudEvents), ``body_pipe`` (thread to event loop, server-sent events).
"""
