// Packs chunks of one to eight bytes into words, checks them, and keeps them until they are written back.
//
// Blocks follow each other without gaps. Where a block's checksum belongs the encoder leaves four bytes; meanwhile the
// next block is packed. The finisher adds the block's odd last bytes one per cycle and then fills the hole in the
// buffer, and no word from the hole on leaves the buffer before that (`committed`).
module packer (
    input  logic        clk,
    input  logic        reset,
    input  logic        chunk_valid,
    output logic        chunk_ready,
    input  logic [63:0] chunk,
    input  logic [ 3:0] chunk_bytes,
    input  logic        chunk_begins,
    input  logic        chunk_ends,
    input  logic        chunk_flush,
    // the buffer, as the write-back sees it; positions count words since the job began
    output logic [28:0] committed,
    input  logic [28:0] read_position,
    input  logic        read_enable,
    output logic [63:0] read_data,
    output logic        idle,
    output logic        buffer_full
);
  // Everything moves together, except while a hole is filled, the buffer is full or the finisher is not free.
  logic go, filling, room;
  assign chunk_ready = go;

  // Step 1: the chunk turned to the lane where it continues.
  logic [2:0] fill;
  logic one_valid, one_begins, one_ends, one_flush;
  logic [63:0] one_data, turned;
  logic [2:0] one_fill;
  logic [3:0] one_bytes;
  byte_rotate turn (.data(chunk), .amount(3'd0 - fill), .result(turned));

  // Step 2: joined with the bytes before it.
  logic [63:0] partial, joined;
  logic [4:0] end_lane;
  logic emits;
  logic begins_held, ends_held;
  logic [2:0] begin_lane_held, end_lane_held;
  always_comb begin
    for (int j = 0; j < 8; j++) joined[8*j+:8] = 3'(j) < one_fill ? partial[8*j+:8] : one_data[8*j+:8];
  end
  assign end_lane = {2'b0, one_fill} + {1'b0, one_bytes};
  assign emits = one_valid && (end_lane >= 5'd8 || (one_flush && one_fill != 3'd0));

  // Step 3: a whole word; the block's first or last checked byte may lie in it.
  logic word_valid, word_begins, word_ends;
  logic [63:0] word;
  logic [2:0] word_begin_lane, word_end_lane;

  always_ff @(posedge clk) begin
    if (reset) begin
      fill        <= 3'd0;
      one_valid   <= 1'b0;
      word_valid  <= 1'b0;
      begins_held <= 1'b0;
      ends_held   <= 1'b0;
    end else if (go) begin
      one_valid <= chunk_valid;
      if (chunk_valid) fill <= fill + chunk_bytes[2:0];
      word_valid <= emits;
      if (one_valid) begin
        begins_held <= !emits && (begins_held || one_begins);
        ends_held   <= !emits && (ends_held || one_ends);
      end
    end
    if (go) begin
      one_data   <= turned;
      one_fill   <= fill;
      one_bytes  <= chunk_bytes;
      one_begins <= chunk_valid && chunk_begins;
      one_ends   <= chunk_valid && chunk_ends;
      one_flush  <= chunk_valid && chunk_flush;
      if (one_valid) begin
        partial <= end_lane >= 5'd8 ? one_data : joined;
        if (one_begins) begin_lane_held <= one_fill;
        if (one_ends) end_lane_held <= one_fill;
      end
      word            <= joined;
      word_begins     <= begins_held || one_begins;
      word_ends       <= ends_held || one_ends;
      word_begin_lane <= one_begins ? one_fill : begin_lane_held;
      word_end_lane   <= one_ends ? one_fill : end_lane_held;
    end
  end

  // The checksum over whole words. A word may end one block and begin the next.
  logic [31:0] state, begin_state, step_from, step_next;
  logic [63:0] step_data;
  crc32c_start start_state (.lane(word_begin_lane), .state(begin_state));
  crc32c_word step_word (.state(step_from), .data(step_data), .next(step_next));
  always_comb begin
    step_from = word_begins ? begin_state : state;
    step_data = word;
    for (int j = 0; j < 8; j++) if (word_begins && 3'(j) < word_begin_lane) step_data[8*j+:8] = 8'd0;
  end
  always_ff @(posedge clk) if (go && word_valid) state <= step_next;

  // The finisher, and the hole it fills: four bytes behind the type byte, in one word or two.
  localparam logic [2:0] REST = 3'd0, BYTES = 3'd1, MASK = 3'd2, FIRST = 3'd3, SECOND = 3'd4;
  logic [2:0] finish;
  logic [31:0] finish_state, finish_next;
  logic [63:0] finish_data, checksum;
  logic [3:0] finish_left;
  logic [2:0] finish_lane;
  logic [28:0] hole, write_position;
  logic [31:0] masked;
  logic begin_finish, second_there;
  crc32c_byte step_byte (.state(finish_state), .data(finish_data[7:0]), .next(finish_next));
  assign masked = {~finish_state[14:0], ~finish_state[31:15]} + 32'ha282ead8;
  assign begin_finish = word_valid && word_ends;
  // A cycle late, which only delays: the hole is known three cycles before this counts.
  always_ff @(posedge clk) second_there <= write_position != hole && write_position != hole + 29'd1;
  assign filling = finish == FIRST || (finish == SECOND && second_there);

  always_ff @(posedge clk) begin
    if (reset) finish <= REST;
    else begin
      unique case (finish)
        REST: if (begin_finish && go) finish <= BYTES;
        BYTES: if (finish_left == 4'd1) finish <= MASK;
        MASK: finish <= FIRST;
        FIRST: finish <= finish_lane[2] ? SECOND : REST;
        default: if (second_there) finish <= REST;
      endcase
    end
    if (finish == REST) begin
      finish_state <= state;
      finish_data  <= word;
      finish_lane  <= word_end_lane;
      finish_left  <= {1'b0, word_end_lane} + 4'd1;
      hole         <= write_position;
    end else if (finish == BYTES) begin
      finish_state <= finish_next;
      finish_data  <= {8'b0, finish_data[63:8]};
      finish_left  <= finish_left - 4'd1;
    end
    if (finish == MASK) begin
      // Byte 0 of the checksum goes to the lane behind the type byte.
      unique case (finish_lane[1:0])
        2'd3: checksum <= {masked, masked};
        2'd0: checksum <= {masked[23:0], masked, masked[31:24]};
        2'd1: checksum <= {masked[15:0], masked, masked[31:16]};
        default: checksum <= {masked[7:0], masked, masked[31:8]};
      endcase
    end
  end

  // The buffer. The packer's words and the filling of holes share the write port.
  logic [63:0] buffer[512];
  logic [7:0] write_lanes;
  logic [63:0] write_data;
  logic [8:0] write_at;
  always_comb begin
    write_lanes = {8{word_valid && go}};
    write_data  = word;
    write_at    = write_position[8:0];
    if (filling) begin
      write_data = checksum;
      write_at   = finish == FIRST ? hole[8:0] : hole[8:0] + 9'd1;
      for (int j = 0; j < 8; j++)
        write_lanes[j] = finish == FIRST ? 4'(j) > {1'b0, finish_lane} && 4'(j) <= {1'b0, finish_lane} + 4'd4
            : 4'(j) + 4'd4 <= {1'b0, finish_lane};
    end
  end
  for (genvar j = 0; j < 8; j++) begin : g_lane
    always_ff @(posedge clk) if (write_lanes[j]) buffer[write_at][8*j+:8] <= write_data[8*j+:8];
  end
  always_ff @(posedge clk) if (read_enable) read_data <= buffer[read_position[8:0]];

  always_ff @(posedge clk) begin
    if (reset) begin
      write_position <= 29'd0;
      committed      <= 29'd0;
      room           <= 1'b1;
    end else begin
      if (go && word_valid) write_position <= write_position + 29'd1;
      committed <= finish == REST ? write_position : hole;
      // A word may be on its way while the comparison is made.
      room <= 9'(write_position - read_position) < 9'd480;
    end
  end

  assign go = room && !filling && !(begin_finish && finish != REST);
  assign buffer_full = !room;
  assign idle = !one_valid && !word_valid && finish == REST && committed == write_position;
endmodule
